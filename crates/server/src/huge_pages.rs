//! Huge pages: a walk through gigabytes spends much of its time on page tables otherwise.
//!
//! mimalloc asks the system for them if a variable says so when the process starts, and in no other way that is open
//! to safe code. So the server starts itself again with the variable set; the process keeps its number.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

const VARIABLE: &str = "MIMALLOC_ALLOW_LARGE_OS_PAGES";

/// Starts this program again with huge pages, unless it was. Where that fails it goes on without: slower, and
/// right.
pub(crate) fn ensure() {
    if cfg!(not(target_os = "linux")) || std::env::var_os(VARIABLE).is_some() {
        return;
    }
    let Ok(program) = std::env::current_exe() else { return };
    let error = Command::new(program).args(std::env::args_os().skip(1)).env(VARIABLE, "1").exec();
    eprintln!("standings: going on without huge pages: {error}");
}
