//! One key: its text, which only its owner has, and what the server keeps of it.
//!
//! The text is `sk_<id>_<secret>`: the id finds the key, the secret proves it. Of the secret only the SHA-256 is kept.
//! A slow password hash would buy nothing here: the secret is 160 random bits, which nobody can try out, and the
//! hash is computed for every request.
//!
//! No secret and no hash appears in `Debug` output.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

const PREFIX: &str = "sk_";
const ID_CHARACTERS: usize = 12;
const SECRET_CHARACTERS: usize = 32;

/// 32 characters that cannot be taken for one another, five bits each.
const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";

/// What a key allows; each role includes those before it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Standings and profiles.
    Read,
    /// Also scores.
    Write,
    /// Also boards, users, keys.
    Admin,
}

impl std::fmt::Display for Role {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Role::Read => "read",
            Role::Write => "write",
            Role::Admin => "admin",
        })
    }
}

/// What the server keeps of a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiKey {
    /// Finds the key; not secret.
    pub id: String,
    /// What its owner calls it.
    pub name: String,
    /// What it allows.
    pub role: Role,
    /// The boards it is limited to, by the beginning of their names; empty means all boards.
    #[serde(default)]
    pub board_prefixes: Vec<String>,
    /// Proves the secret.
    pub hash: SecretHash,
    /// When it was made, in milliseconds since 1970.
    pub created_at_ms: i64,
    /// When it was revoked, if it was.
    #[serde(default)]
    pub revoked_at_ms: Option<i64>,
}

impl ApiKey {
    /// A new key, and the text for its owner, which exists nowhere else.
    pub fn create(
        name: impl Into<String>,
        role: Role,
        board_prefixes: Vec<String>,
        now_ms: i64,
    ) -> Result<(ApiKey, KeyText), RandomnessUnavailable> {
        let (id, secret) = (random(ID_CHARACTERS)?, random(SECRET_CHARACTERS)?);
        let text = KeyText(format!("{PREFIX}{id}_{secret}"));
        let hash = SecretHash::of(&secret);
        let key = ApiKey {
            id,
            name: name.into(),
            role,
            board_prefixes,
            hash,
            created_at_ms: now_ms,
            revoked_at_ms: None,
        };
        Ok((key, text))
    }

    /// Whether the key may touch this board.
    pub fn allows_board(&self, board: &str) -> bool {
        self.board_prefixes.is_empty() || self.board_prefixes.iter().any(|prefix| board.starts_with(prefix))
    }
}

/// The text of a key, to be shown to its owner once.
pub struct KeyText(String);

impl KeyText {
    /// The text. Whoever calls this shows it to the owner, and to nobody else.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for KeyText {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("KeyText(hidden)")
    }
}

/// The SHA-256 of a secret; hexadecimal where it is stored.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SecretHash([u8; 32]);

impl SecretHash {
    fn of(secret: &str) -> SecretHash {
        SecretHash(Sha256::digest(secret).into())
    }

    /// Whether it is the hash of this secret, in a time that does not depend on how much of it is right.
    pub(super) fn matches(&self, secret: &str) -> bool {
        self.0.ct_eq(&SecretHash::of(secret).0).into()
    }
}

impl std::fmt::Debug for SecretHash {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("SecretHash(hidden)")
    }
}

impl From<SecretHash> for String {
    fn from(hash: SecretHash) -> String {
        hash.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl TryFrom<String> for SecretHash {
    type Error = &'static str;

    fn try_from(text: String) -> Result<SecretHash, &'static str> {
        const WRONG: &str = "the hash of a key is 64 hexadecimal digits";
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return Err(WRONG);
        }
        let mut hash = [0; 32];
        for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |index: usize| char::from(pair[index]).to_digit(16).ok_or(WRONG);
            *byte = u8::try_from(digit(0)? << 4 | digit(1)?).map_err(|_| WRONG)?;
        }
        Ok(SecretHash(hash))
    }
}

/// What was sent has not the form of a key. It does not say what was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a key looks like `sk_<id>_<secret>`, sent as `Authorization: Bearer <key>` or `X-API-Key: <key>`")]
pub struct MalformedKey;

/// The system gives no random numbers, without which a key would be guessable.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the system gives no random numbers ({0}); a key cannot be made without")]
pub struct RandomnessUnavailable(getrandom::Error);

/// The id and the secret in the text of a key.
pub(super) fn split(text: &str) -> Result<(&str, &str), MalformedKey> {
    let (id, secret) = text.strip_prefix(PREFIX).and_then(|rest| rest.split_once('_')).ok_or(MalformedKey)?;
    let right = |part: &str, characters| {
        part.len() == characters && part.bytes().all(|byte| ALPHABET.contains(&byte))
    };
    if right(id, ID_CHARACTERS) && right(secret, SECRET_CHARACTERS) {
        Ok((id, secret))
    } else {
        Err(MalformedKey)
    }
}

fn random(characters: usize) -> Result<String, RandomnessUnavailable> {
    let mut bytes = vec![0; characters];
    getrandom::fill(&mut bytes).map_err(RandomnessUnavailable)?;
    // 256 is a multiple of 32, so every character is as likely as any other.
    Ok(bytes.iter().map(|byte| char::from(ALPHABET[usize::from(byte % 32)])).collect())
}
