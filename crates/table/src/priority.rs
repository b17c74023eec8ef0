//! Which thread goes first.

/// How far background work stands back: about a ninth of the share of the processor, if others want it all.
const BACKGROUND_NICE: i32 = 10;

/// How far work stands back that nobody waits for: what it writes must not keep others from being written out.
const IDLE_NICE: i32 = 19;

/// Lets every other thread go before this one, those of the storage engine that give way themselves included.
pub fn give_way_to_all() {
    if cfg!(target_os = "linux") {
        let _ = rustix::process::nice(IDLE_NICE);
    }
}

/// Lets other threads go before this one, where the system knows priorities of threads. Writing out and merging then use what
/// commits and reads leave, and a commit does not wait for a merge to use up its slice of time.
pub(crate) fn give_way() {
    if cfg!(target_os = "linux") {
        let _ = rustix::process::nice(BACKGROUND_NICE);
    }
}
