//! The `standings` server: HTTP, command line and configuration around the rules of `standings-boards`.
//!
//! The binary is thin: everything is here, so that tests run the same code on a socket of their own.
//!
//! | module | holds |
//! |---|---|
//! | [`config`] | settings from file, environment and flags, checked once into types |
//! | [`auth`] | API keys: roles, boards, the ring that a request is checked against |
//! | [`rate`] | how often a key may ask |
//! | [`store`] | the data folder: table, meter, rules |
//! | [`http`] | from a socket to handlers and back |
//! | [`cli`] | one file a command |

pub mod auth;
pub mod cli;
pub mod config;
pub mod http;
mod logging;
pub mod rate;
pub mod store;
