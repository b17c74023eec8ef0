//! The `standings` program. Everything is in the library.

use std::process::ExitCode;

/// mimalloc asks for transparent huge pages by itself (`MIMALLOC_ALLOW_THP`, on by default), also where the system gives
/// them only to those who ask (`madvise`): nearly all of a heap of 700 MB lay in huge pages, without starting again under
/// a tunable as glibc's allocator needs. A walk through gigabytes spends much of its time on page tables otherwise.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    standings::cli::run()
}
