//! The `standings` server: HTTP, command line and configuration around the rules of `standings-boards`.
//!
//! The binary is thin: everything is here, so that tests run the same code on a socket of their own.
//!
//! | module | holds |
//! |---|---|
//! | [`http`] | from a socket to handlers and back |

pub mod http;
