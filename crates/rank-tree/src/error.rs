//! What can go wrong when a user is added.

use thiserror::Error;

/// Why a user could not be added. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// The user id is empty or longer than 254 bytes.
    #[error("a user id has 1 to 254 bytes, this one has {bytes}")]
    IdLength {
        /// How long it is.
        bytes: usize,
    },
    /// There are some two billion users already.
    #[error("no more users fit in one `Users`; spread the boards over several")]
    Full,
}
