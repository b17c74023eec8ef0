//! Looks at the engine's lists of its own files before the engine does, because it trusts them unread.
//!
//! Each keyspace has a list of its data files, `v<n>`; the file `current` says which list counts and what its checksum
//! is. fjall 3.1 writes that checksum but does not verify it: one changed bit in a list can make a data file vanish
//! without a word, or ask for 70 GB of memory. Each data file ends with a table of contents and its
//! checksum, which fjall verifies only after having believed the length in it. Blocks of data it verifies by itself.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use xxhash_rust::xxh3::xxh3_128;

use crate::embedded::folder;
use crate::error::{Error, Result};

/// `magic, version, checksum type, checksum u128, position u64, length u64`
const TRAILER_BYTES: usize = 38;
const TRAILER_MAGIC: &[u8] = b"SFA!";

/// Verifies the lists of all keyspaces and the tables of contents of their files.
pub(crate) fn verify(engine_folder: &Path) -> Result<()> {
    for keyspace in entries(&engine_folder.join("keyspaces"))? {
        let current = keyspace.join("current");
        // Without `current`, the machine stopped while the keyspace was being made; the engine starts it over.
        if !current.exists() {
            continue;
        }
        verify_list(&keyspace, &current)?;
        let tables = keyspace.join("tables");
        if tables.exists() {
            entries(&tables)?.iter().try_for_each(|table| verify_contents(table))?;
        }
    }
    Ok(())
}

fn verify_list(keyspace: &Path, current: &Path) -> Result<()> {
    let bytes = fs::read(current).map_err(|error| folder::io("reading", current, &error))?;
    let parsed = bytes.split_first_chunk::<8>().and_then(|(number, rest)| {
        let (checksum, rest) = rest.split_first_chunk::<16>()?;
        (rest == [0]).then(|| (u64::from_le_bytes(*number), u128::from_le_bytes(*checksum)))
    });
    let Some((number, checksum)) = parsed else {
        return Err(corrupt(current, "it does not say which list of files counts"));
    };
    let list = keyspace.join(format!("v{number}"));
    let bytes =
        fs::read(&list).map_err(|error| corrupt(&list, &format!("`current` names it, but: {error}")))?;
    if xxh3_128(&bytes) == checksum {
        Ok(())
    } else {
        Err(corrupt(&list, "its checksum is not the one in `current`"))
    }
}

fn verify_contents(table: &Path) -> Result<()> {
    let failed = |error: std::io::Error| folder::io("reading", table, &error);
    let mut file = File::open(table).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    let Some(trailer_at) = length.checked_sub(TRAILER_BYTES as u64) else { return Ok(()) };
    let mut trailer = [0; TRAILER_BYTES];
    file.seek(SeekFrom::Start(trailer_at)).and_then(|_| file.read_exact(&mut trailer)).map_err(failed)?;
    // A file without a trailer was never finished: nobody refers to it, or the engine will say so.
    if !trailer.starts_with(TRAILER_MAGIC) {
        return Ok(());
    }
    let (fields, _) = trailer[6..].as_chunks::<8>();
    let field = |at: usize| u64::from_le_bytes(fields[at]);
    let checksum = u128::from(field(1)) << 64 | u128::from(field(0));
    let (position, contents_length) = (field(2), field(3));
    if position.checked_add(contents_length) != Some(trailer_at) {
        return Err(corrupt(table, "its table of contents is not where it should be"));
    }
    let mut contents = Vec::new();
    file.seek(SeekFrom::Start(position)).map_err(failed)?;
    (&file).take(contents_length).read_to_end(&mut contents).map_err(failed)?;
    if xxh3_128(&contents) == checksum {
        Ok(())
    } else {
        Err(corrupt(table, "its table of contents is damaged"))
    }
}

fn entries(path: &Path) -> Result<Vec<std::path::PathBuf>> {
    let failed = |error: std::io::Error| folder::io("reading", path, &error);
    let entries = fs::read_dir(path).map_err(failed)?;
    entries.map(|entry| entry.map(|entry| entry.path()).map_err(failed)).collect()
}

fn corrupt(file: &Path, detail: &str) -> Error {
    Error::Corrupt { file: file.to_owned(), key: None, detail: detail.to_owned() }
}
