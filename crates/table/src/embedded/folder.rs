//! The folder of a table: what is in it, who has it open, and which format it has.
//!
//! ```text
//! FORMAT        the format version and the schema, with a checksum
//! LOCK          held while the table is open; says by whom
//! engine/       the storage engine's files
//! engine.new/   an engine that is still being set up: never holds acknowledged data
//! ```
//!
//! A table is set up in `engine.new`, then `FORMAT` is written, then `engine.new` becomes `engine`: whatever
//! moment the machine stops at, the next opening either starts over (there is no `engine`, so nothing was
//! ever acknowledged) or finds a whole table. An `engine` without `FORMAT` is damage, not a new table.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::schema::{Index, Projection, Schema, Scope};

/// The format this version reads and writes.
pub(crate) const FORMAT_VERSION: u32 = 1;

const FORMAT_FILE: &str = "FORMAT";
const FORMAT_NEW_FILE: &str = "FORMAT.new";
const LOCK_FILE: &str = "LOCK";
const ENGINE_FOLDER: &str = "engine";
const ENGINE_NEW_FOLDER: &str = "engine.new";
const FIRST_WORDS: &str = "standings-table format";

/// A folder held by this process.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    /// The operating system lets go of the lock when the file is closed, however the process ends.
    _lock: File,
}

impl Folder {
    /// Takes hold of the folder, making it if it is not there.
    pub(crate) fn hold(path: &Path) -> Result<Self> {
        create_folder(path)?;
        let lock_path = path.join(LOCK_FILE);
        let mut lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&lock_path)
            .map_err(|error| io("opening", &lock_path, &error))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let _ = lock.read_to_string(&mut holder);
                let holder = match holder.trim() {
                    "" => "another process".to_owned(),
                    holder => holder.to_owned(),
                };
                return Err(Error::Locked { folder: path.to_owned(), holder });
            }
            Err(fs::TryLockError::Error(error)) => return Err(io("locking", &lock_path, &error)),
        }
        // Only for people to read: the lock itself is the operating system's. On a full disk it stays empty.
        let _ = lock.set_len(0).and_then(|()| lock.rewind());
        let _ = writeln!(lock, "process {}", std::process::id());
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    /// The folder itself.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Where the storage engine's files are.
    pub(crate) fn engine(&self) -> PathBuf {
        self.path.join(ENGINE_FOLDER)
    }

    /// Makes sure that a whole table of this schema is there; `set_up` fills a new engine's folder.
    pub(crate) fn ensure_table(
        &self,
        schema: &Schema,
        set_up: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<()> {
        let (format, engine) = (self.path.join(FORMAT_FILE), self.engine());
        let engine_new = self.path.join(ENGINE_NEW_FOLDER);
        match (exists(&format)?, exists(&engine)?) {
            (true, true) => return check_format(&format, schema),
            (false, true) => {
                return Err(corrupt(&format, "the file is missing though there is data beside it"));
            }
            (true, false) if !exists(&engine_new)? => {
                return Err(corrupt(&engine, "the folder is missing though the table was set up"));
            }
            (true, false) => check_format(&format, schema)?,
            (false, false) => {}
        }
        if exists(&engine_new)? {
            fs::remove_dir_all(&engine_new).map_err(|error| io("removing", &engine_new, &error))?;
        }
        set_up(&engine_new)?;
        write_format(&self.path, schema)?;
        fs::rename(&engine_new, &engine).map_err(|error| io("renaming", &engine_new, &error))?;
        sync_folder(&self.path)
    }
}

/// Makes a folder and everything above it, so that none of them is lost when the machine stops.
pub(crate) fn create_folder(path: &Path) -> Result<()> {
    let mut missing = Vec::new();
    let mut at = path;
    while !exists(at)? {
        missing.push(at);
        match at.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => at = parent,
            _ => break,
        }
    }
    fs::create_dir_all(path).map_err(|error| io("creating", path, &error))?;
    for created in missing {
        let parent = created.parent().filter(|parent| !parent.as_os_str().is_empty());
        sync_folder(parent.unwrap_or(Path::new(".")))?;
    }
    Ok(())
}

/// Makes the names in a folder durable.
pub(crate) fn sync_folder(path: &Path) -> Result<()> {
    File::open(path).and_then(|folder| folder.sync_all()).map_err(|error| io("syncing", path, &error))
}

/// An input or output error, with a full disk told apart.
pub(crate) fn io(doing: &str, path: &Path, error: &std::io::Error) -> Error {
    if is_disk_full(error) {
        return Error::DiskFull { folder: path.to_owned() };
    }
    Error::Io { doing: format!("{doing} {}", path.display()), why: error.to_string() }
}

/// Whether an error says that there is no room.
pub(crate) fn is_disk_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}

fn exists(path: &Path) -> Result<bool> {
    path.try_exists().map_err(|error| io("looking for", path, &error))
}

fn corrupt(file: &Path, detail: impl Into<String>) -> Error {
    Error::Corrupt { file: file.to_owned(), key: None, detail: detail.into() }
}

fn write_format(folder: &Path, schema: &Schema) -> Result<()> {
    let (new, path) = (folder.join(FORMAT_NEW_FILE), folder.join(FORMAT_FILE));
    let body = describe(schema);
    let content = format!("{body}checksum {:016x}\n", checksum(&body));
    let write = || {
        let mut file = File::create(&new)?;
        file.write_all(content.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &path)
    };
    write().map_err(|error| io("writing", &path, &error))?;
    sync_folder(folder)
}

fn check_format(path: &Path, schema: &Schema) -> Result<()> {
    let bytes = fs::read(path).map_err(|error| io("reading", path, &error))?;
    let text = String::from_utf8(bytes).map_err(|_| corrupt(path, "the file is not text"))?;
    let first = text.lines().next().unwrap_or_default();
    let Some(found) = first.strip_prefix(FIRST_WORDS) else {
        return Err(corrupt(path, format!("the file does not begin with `{FIRST_WORDS}`")));
    };
    let found = found.trim();
    // The version comes before the checksum: a newer format may well be checked in another way.
    if found.parse() != Ok(FORMAT_VERSION) {
        let found = found.to_owned();
        return Err(Error::UnsupportedFormat { file: path.to_owned(), found, supported: FORMAT_VERSION });
    }
    let Some((body, sum)) = text.rsplit_once("checksum ") else {
        return Err(corrupt(path, "the checksum is missing"));
    };
    if sum.trim_end() != format!("{:016x}", checksum(body)) {
        return Err(corrupt(path, "the checksum does not match"));
    }
    let expected = describe(schema);
    if body == expected {
        return Ok(());
    }
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let (stored, asked) = (lines(body), lines(&expected));
    let extra =
        stored.iter().find(|line| !asked.contains(line)).map(|line| format!("the table has `{line}`"));
    let missing =
        asked.iter().find(|line| !stored.contains(line)).map(|line| format!("asked for is `{line}`"));
    let difference = extra.into_iter().chain(missing).collect::<Vec<_>>().join("; ");
    let difference = if difference.is_empty() { "their order".to_owned() } else { difference };
    Err(Error::SchemaMismatch { file: path.to_owned(), difference })
}

fn checksum(text: &str) -> u64 {
    xxhash_rust::xxh3::xxh3_64(text.as_bytes())
}

fn describe(schema: &Schema) -> String {
    let mut text = format!("{FIRST_WORDS} {FORMAT_VERSION}\n");
    for index in schema.indexes() {
        text.push_str(&describe_index(index));
        text.push('\n');
    }
    text
}

fn describe_index(index: &Index) -> String {
    let scope = match index.scope {
        Scope::Local => "local",
        Scope::Global => "global",
    };
    let projection = match &index.projection {
        Projection::KeysOnly => "keys".to_owned(),
        Projection::Include(names) => format!("include {names:?}"),
        Projection::All => "all".to_owned(),
    };
    let (partition, sort) = (&index.partition, &index.sort);
    format!(
        "index {} {scope} by {partition:?}, {sort:?} {:?}, carries {projection}",
        index.name, index.sort_type
    )
}
