//! The command line: one file a command, and one arm of the enum `Command`.
//!
//! Exit status: 0 it worked, 1 it did not, 2 the command line or a setting is wrong. Whatever goes wrong is one line on
//! standard error.

mod around;
mod check;
mod client;
mod config;
mod key;
mod output;
mod rank;
mod rebuild;
mod serve;
mod submit;
mod top;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::config::SettingError;

const EXAMPLE: &str = "\
Example:
  standings serve &
  standings submit ada 10
  standings top

Each command explains itself: standings serve --help";

/// A real-time leaderboard server for games.
#[derive(Debug, Parser)]
#[command(name = "standings", version, after_help = EXAMPLE, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(Box<serve::Serve>),
    Submit(submit::Submit),
    Top(top::Top),
    Rank(rank::Rank),
    Around(around::Around),
    Check(check::Check),
    Rebuild(rebuild::Rebuild),
    Key(key::Key),
    Config(config::Config),
}

/// Runs the command that the process was started with.
pub fn run() -> ExitCode {
    // clap ends the process itself, with 2, where the command line is wrong.
    let result = match Arguments::parse().command {
        Command::Serve(serve) => serve.run(),
        Command::Submit(submit) => submit.run(),
        Command::Top(top) => top.run(),
        Command::Rank(rank) => rank.run(),
        Command::Around(around) => around.run(),
        Command::Check(check) => check.run(),
        Command::Rebuild(rebuild) => rebuild.run(),
        Command::Key(key) => key.run(),
        Command::Config(config) => config.run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever reads our output has seen enough, as `head` does.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("standings: {error:#}");
            ExitCode::from(if error.is::<SettingError>() { 2 } else { 1 })
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}
