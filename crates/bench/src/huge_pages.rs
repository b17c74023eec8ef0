//! Runs the bench with huge pages, as the server will run: a walk through gigabytes spends much of its time on page
//! tables otherwise.

use anyhow::Context as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

const VARIABLE: &str = "GLIBC_TUNABLES";
const TUNABLE: &str = "glibc.malloc.hugetlb=1";

/// Starts this program again with the allocator told to ask for huge pages, unless it was.
///
/// The allocator reads its settings once, at the start of the process, so there is no way to do this later.
pub(crate) fn ensure() -> anyhow::Result<()> {
    let set = std::env::var(VARIABLE).unwrap_or_default();
    if set.contains("glibc.malloc.hugetlb") || cfg!(not(all(target_os = "linux", target_env = "gnu"))) {
        return Ok(());
    }
    let value = if set.is_empty() { TUNABLE.to_owned() } else { format!("{set}:{TUNABLE}") };
    let program = std::env::current_exe().context("finding this program")?;
    let error = Command::new(program).args(std::env::args_os().skip(1)).env(VARIABLE, value).exec();
    Err(error).context("starting again with huge pages; --no-huge-pages does without")
}
