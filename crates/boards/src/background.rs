//! Work that gives way: on a thread of its own that the system lets run when plays and reads leave it time.
//!
//! Closing a season of a million users is seconds of work. On the threads that answer requests, every request would wait for its share of it.

use std::future::Future;

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::error::{Error, Result};

/// Does something to its end, also if the caller goes away: what the table has, memory must have too.
///
/// # Errors
/// What the work says.
pub(crate) async fn to_its_end<T: Send + 'static>(
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    tokio::spawn(work).await.unwrap_or(Err(Error::Contended))
}

/// Does work in the background. It stops where it next waits if nobody waits for it any more.
///
/// # Errors
/// What the work says; [`Error::Background`] if it could not be begun or ended by a panic.
pub(crate) async fn run<T: Send + 'static>(
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    let (mut sender, done) = oneshot::channel();
    let runtime = Handle::current();
    let thread = std::thread::Builder::new().name("background".to_owned()).spawn(move || {
        standings_table::give_way_to_all();
        runtime.block_on(async move {
            tokio::select! {
                result = work => {
                    // Nobody waits any more: nobody to tell.
                    let _ = sender.send(result);
                }
                () = sender.closed() => {}
            }
        });
    });
    thread.map_err(|error| Error::Background { why: error.to_string() })?;
    done.await.unwrap_or_else(|_| Err(Error::Background { why: "it ended by itself".to_owned() }))
}
