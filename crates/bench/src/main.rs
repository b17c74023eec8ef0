//! `standings-bench`: workloads, and the rivals they are measured beside, in the same run on the same machine.
//!
//! Every bench prints the same table (or, with `--json`, the same lines): ours, the rival, and the ratio, above 1 where we are
//! better. Rivals are started by the bench on a free loopback port in a temporary folder and are gone when it ends, also when it
//! is interrupted.

mod data;
mod http;
mod rank_tree;
mod report;
mod rival;
mod seasons;
mod table;

use clap::{Parser, Subcommand};

/// As in the server: rows are made on callers' threads and freed on the committer's, where glibc's allocator has them wait
/// for each other's locks. It asks for huge pages by itself, which the rank tree is to be measured with.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Debug, Parser)]
#[command(about = "Measures Standings beside its rivals", version)]
struct Arguments {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// The rank tree in process, beside redis-server timed from inside by a Lua loop.
    ///
    /// Example: standings-bench rank-tree --users 25000000
    RankTree(rank_tree::Arguments),
    /// Durable transactions, reads and scans of the embedded table, beside SQLite and a bare file.
    ///
    /// Example: standings-bench table --seconds 5
    Table(table::Arguments),
    /// The server over HTTP, beside redis-server: plays, ranks, lists, batches, memory, restart.
    ///
    /// Example: cargo build --release && standings-bench http --users 1000000
    Http(http::Arguments),
    /// Seasons that end: closing and copying a million users while plays go on, and reading a finished season.
    ///
    /// Example: cargo build --release && standings-bench seasons --users 1000000
    Seasons(seasons::Arguments),
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    rival::stop_on_interrupt()?;
    match arguments.bench {
        Bench::RankTree(arguments) => rank_tree::run(&arguments),
        Bench::Table(arguments) => table::run(&arguments),
        Bench::Http(arguments) => http::run(&arguments),
        Bench::Seasons(arguments) => seasons::run(&arguments),
    }
}
