//! Benchmarks: our workloads, and the rivals they are compared with.

mod table;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Measures Standings beside its rivals")]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Durable transactions, reads and scans of the embedded table, beside SQLite and a bare file.
    Table(table::TableArgs),
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().what {
        What::Table(arguments) => table::run(arguments),
    }
}
