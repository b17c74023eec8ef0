//! What every bench must leave behind: nothing.

use std::path::Path;

/// Processes whose working folder is inside `folder`: a server that was left running.
pub(crate) fn processes_in(folder: &Path) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter(|process| {
            let at = std::fs::read_link(process.path().join("cwd"));
            at.is_ok_and(|at| at.starts_with(folder))
        })
        .map(|process| process.file_name().to_string_lossy().into_owned())
        .collect()
}

pub(crate) fn assert_nothing_left(folder: &Path) {
    assert_eq!(processes_in(folder), [""; 0], "a server is still running");
    let left: Vec<_> = std::fs::read_dir(folder).unwrap().flatten().map(|file| file.path()).collect();
    assert!(left.is_empty(), "files are left: {left:?}");
}
