//! Looks through the engine's journal before the engine does, because the two judge a broken one differently.
//!
//! A batch the machine stopped in the middle of is normal: it was never acknowledged and must be dropped. A
//! batch that was whole once and is not any more is damage and must be reported. fjall drops everything from
//! the first broken byte on, which would silently lose acknowledged batches after a damaged one; and it refuses
//! to open if a torn batch happens to have an intact end, which would turn a power cut into a refusal.
//!
//! The two can be told apart, because a batch is only written after the one before it has been synced:
//!
//! - A whole batch *behind* a broken one proves that the broken one was once whole: damage.
//! - In a journal that is not the newest, everything was synced before the next was begun: damage.
//! - A table that was closed in good order left a note of how long its newest journal was: damage before that.
//! - Otherwise it is the torn tail of a batch nobody was told of; it is cut off.
//!
//! What this cannot see is damage to the very last batch before a crash.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

use crate::embedded::folder;
use crate::error::{Error, Result};

/// The note a table leaves when it is closed: the newest journal's name and how much of it is written.
const CLOSED_FILE: &str = "CLOSED";

const TAG_START: u8 = 1;
const TAG_ITEM: u8 = 2;
const TAG_END: u8 = 3;
const TAG_CLEAR: u8 = 4;
const TRAILER: &[u8] = b"FJL\x03";

/// Verifies all journals in the engine's folder and cuts off a torn tail.
pub(crate) fn verify(table_folder: &Path, engine_folder: &Path) -> Result<()> {
    let closed = read_closed(table_folder)?;
    let journals = journals(engine_folder)?;
    let newest = journals.len().saturating_sub(1);
    for (at, path) in journals.iter().enumerate() {
        let bytes = fs::read(path).map_err(|error| folder::io("reading", path, &error))?;
        let end = whole_batches_end(&bytes);
        let damaged = |detail: String| Err(Error::Corrupt { file: path.clone(), key: None, detail });
        if let Some((name, length)) = &closed
            && path.file_name().is_some_and(|file| file == name.as_str())
            && (end as u64) < *length
        {
            return damaged(format!(
                "the batch at byte {end} is damaged; the journal was whole to byte {length}"
            ));
        }
        if bytes[end..].iter().all(|byte| *byte == 0) {
            continue;
        }
        if at < newest {
            return damaged(format!("the batch at byte {end} is damaged, though a newer journal follows"));
        }
        // A whole batch right there has only the wrong sequence number: then it, or the one before it, is damaged.
        if let Some(later) = (end..bytes.len()).find(|later| batch_at(&bytes[*later..]).is_some()) {
            return damaged(format!(
                "the batch at byte {end} is damaged, though the one at byte {later} is whole"
            ));
        }
        tracing::info!(journal = %path.display(), byte = end, "cutting off a batch that was never acknowledged");
        cut(path, end as u64)?;
    }
    remove_closed(table_folder)
}

/// Leaves the note that everything up to here was written and nothing is under way.
pub(crate) fn note_closed(table_folder: &Path, engine_folder: &Path) -> Result<()> {
    let journals = journals(engine_folder)?;
    let Some(newest) = journals.last() else { return Ok(()) };
    let bytes = fs::read(newest).map_err(|error| folder::io("reading", newest, &error))?;
    let end = whole_batches_end(&bytes);
    let name = newest.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let path = table_folder.join(CLOSED_FILE);
    let write = || {
        let mut file = File::create(&path)?;
        writeln!(file, "{name} {end} end")?;
        file.sync_all()
    };
    write().map_err(|error| folder::io("writing", &path, &error))
}

fn read_closed(table_folder: &Path) -> Result<Option<(String, u64)>> {
    let path = table_folder.join(CLOSED_FILE);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        // A note that cannot be read says nothing; it only ever makes the check stricter.
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => return Ok(None),
        Err(error) => return Err(folder::io("reading", &path, &error)),
    };
    let mut words = text.split_whitespace();
    let (name, length, end) =
        (words.next(), words.next().and_then(|length| length.parse().ok()), words.next());
    // A note cut short by a crash says nothing either.
    Ok(name.zip(length).filter(|_| end == Some("end")).map(|(name, length)| (name.to_owned(), length)))
}

fn remove_closed(table_folder: &Path) -> Result<()> {
    let path = table_folder.join(CLOSED_FILE);
    match fs::remove_file(&path) {
        Ok(()) => folder::sync_folder(table_folder),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(folder::io("removing", &path, &error)),
    }
}

/// The journals, oldest first.
fn journals(engine_folder: &Path) -> Result<Vec<PathBuf>> {
    let failed = |error: &std::io::Error| folder::io("reading", engine_folder, error);
    let mut journals = Vec::new();
    for entry in fs::read_dir(engine_folder).map_err(|error| failed(&error))? {
        let path = entry.map_err(|error| failed(&error))?.path();
        let number =
            path.file_name().and_then(|name| name.to_str()?.strip_suffix(".jnl")?.parse::<u64>().ok());
        if let Some(number) = number {
            journals.push((number, path));
        }
    }
    journals.sort();
    Ok(journals.into_iter().map(|(_, path)| path).collect())
}

fn cut(path: &Path, length: u64) -> Result<()> {
    let cut = || {
        let file = OpenOptions::new().write(true).open(path)?;
        file.set_len(length)?;
        file.sync_all()
    };
    cut().map_err(|error| folder::io("cutting", path, &error))
}

/// Where the run of whole batches from the beginning ends. Their sequence numbers rise; the checksum does
/// not cover them, so this is what guards them.
fn whole_batches_end(bytes: &[u8]) -> usize {
    let (mut end, mut last) = (0, None);
    while let Some((length, sequence)) = batch_at(&bytes[end..])
        && last.is_none_or(|last| last < sequence)
    {
        end += length;
        last = Some(sequence);
    }
    end
}

/// The length and sequence number of the whole batch at the beginning of the bytes, if there is one:
/// `start, count u32, sequence u64`, then `count` rows, then `end, checksum of the rows u64, trailer`.
fn batch_at(bytes: &[u8]) -> Option<(usize, u64)> {
    let (header, mut rest) = bytes.split_first_chunk::<13>()?;
    if header[0] != TAG_START {
        return None;
    }
    let count = u32::from_le_bytes(*header[1..].first_chunk()?);
    let sequence = u64::from_le_bytes(*header[5..].first_chunk()?);
    let mut hash = Xxh3::new();
    for _ in 0..count {
        let length = row_length(rest)?;
        let (row, after) = rest.split_at_checked(length)?;
        hash.update(row);
        rest = after;
    }
    let (footer, rest) = rest.split_first_chunk::<13>()?;
    let checksum = u64::from_le_bytes(*footer[1..].first_chunk()?);
    let whole = footer[0] == TAG_END && footer.ends_with(TRAILER) && checksum == hash.digest();
    whole.then(|| (bytes.len() - rest.len(), sequence))
}

/// `item, type, compression, keyspace u64, key length u16, value length u32, stored length u32, key, value`
/// or `clear, keyspace u64`.
fn row_length(bytes: &[u8]) -> Option<usize> {
    match *bytes.first()? {
        TAG_ITEM => {
            let header = bytes.first_chunk::<21>()?;
            let key = u16::from_le_bytes(*header[11..].first_chunk()?);
            let stored = u32::from_le_bytes(*header[17..].first_chunk()?);
            Some(header.len() + usize::from(key) + stored as usize)
        }
        TAG_CLEAR => Some(9),
        _ => None,
    }
}
