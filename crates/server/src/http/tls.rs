//! TLS by rustls, with a certificate that can be replaced while serving.
//!
//! Certificates are renewed every few weeks by programs that know nothing of us, so the files are looked at again and
//! again. They are compared by content: modification times lie where files are links or have been restored.
//! A pair that does not work (half-written, or a key that belongs to another certificate) leaves the old one in
//! use and says so in the log; it is tried again when the files change again.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};

/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {path}: {source}; check the path and that this user may read it")]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The certificate file has no certificate, or a broken one.
    #[error(
        "{path} holds no certificate in PEM form: {why}; it must begin with the server's own certificate, then the chain"
    )]
    NoCertificate {
        /// Which file.
        path: PathBuf,
        /// What was found.
        why: String,
    },
    /// The key file has no private key, or a broken one.
    #[error(
        "{path} holds no private key in PEM form: {why}; PKCS#8, PKCS#1 and SEC1 keys without a password are taken"
    )]
    NoKey {
        /// Which file.
        path: PathBuf,
        /// What was found.
        why: String,
    },
    /// Certificate and key do not belong together, or are of a kind that is not taken.
    #[error(
        "the certificate in {certificate} cannot be used with the key in {key}: {source}; check that they are a pair"
    )]
    Unusable {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// What rustls says.
        source: rustls::Error,
    },
}

/// A certificate and its key, as they are in their files now.
pub struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    config: ArcSwap<ServerConfig>,
    /// What the files held when they were last looked at, whether it worked or not.
    seen: Mutex<(Vec<u8>, Vec<u8>)>,
}

impl Tls {
    /// Reads certificate and key, both PEM.
    pub fn load(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Result<Tls, TlsError> {
        let (certificate, key) = (certificate.into(), key.into());
        let seen = (read(&certificate)?, read(&key)?);
        let config = ArcSwap::from_pointee(configure(&certificate, &seen.0, &key, &seen.1)?);
        Ok(Tls { certificate, key, config, seen: Mutex::new(seen) })
    }

    /// Takes a changed pair into use for connections from now on. Says whether there was one; on an error the old
    /// pair stays.
    pub fn reload_if_changed(&self) -> Result<bool, TlsError> {
        let now = (read(&self.certificate)?, read(&self.key)?);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if *seen == now {
            return Ok(false);
        }
        let config = configure(&self.certificate, &now.0, &self.key, &now.1);
        *seen = now;
        self.config.store(Arc::new(config?));
        Ok(true)
    }

    /// Looks at the files for ever, every few seconds.
    pub async fn watch(self: Arc<Self>) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let tls = self.clone();
            // Files may lie on a slow disk, and connections must not wait for it.
            match tokio::task::spawn_blocking(move || tls.reload_if_changed()).await {
                Ok(Ok(false)) => {}
                Ok(Ok(true)) => {
                    tracing::info!(certificate = %self.certificate.display(), "certificate replaced");
                }
                Ok(Err(error)) => tracing::error!(%error, "the certificate in use stays"),
                Err(error) => tracing::error!(%error, "looking at the certificate failed"),
            }
        }
    }

    /// The handshake with the pair in use now.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.config.load_full())
    }
}

/// The files' names, and nothing of what is in them.
impl std::fmt::Debug for Tls {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Tls { certificate, key, .. } = self;
        formatter
            .debug_struct("Tls")
            .field("certificate", certificate)
            .field("key", key)
            .finish_non_exhaustive()
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|source| TlsError::Unreadable { path: path.to_owned(), source })
}

fn configure(certificate: &Path, chain: &[u8], key: &Path, secret: &[u8]) -> Result<ServerConfig, TlsError> {
    let no_certificate = |why: String| TlsError::NoCertificate { path: certificate.to_owned(), why };
    let chain = CertificateDer::pem_slice_iter(chain)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| no_certificate(error.to_string()))?;
    if chain.is_empty() {
        return Err(no_certificate("there is no `BEGIN CERTIFICATE` in it".to_owned()));
    }
    let secret = PrivateKeyDer::from_pem_slice(secret)
        .map_err(|error| TlsError::NoKey { path: key.to_owned(), why: error.to_string() })?;
    let unusable =
        |source| TlsError::Unusable { certificate: certificate.to_owned(), key: key.to_owned(), source };
    // The provider is named rather than taken from the process, so that no other crate can choose another.
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .map_err(unusable)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}
