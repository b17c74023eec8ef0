//! A tree as a stream of bytes, and back: how a restart is ready in seconds.
//!
//! ```text
//! header   "RANKTREE"  version u32  order u8 (0 high, 1 low)  users u64 (about; for making room)  crc u32 of all that
//! block    number u32  rows u32  bytes u32   rows…   crc u32 of all that            (repeated)
//! end      number u32  0u32      0u32        users u64   crc u32 of all that
//! row      zigzag varint: score − score of the row before     zigzag varint: time − time of the row before
//!          length u8   id
//! ```
//!
//! All numbers are little-endian; differences wrap and begin at 0 in each block. Rows come in rank order, which makes scores
//! small and lets a load build the index without sorting; a file whose rows are not in order still loads, slower. Blocks are
//! numbered and the end counts the users, so a flipped byte, a lost or doubled block and a cut file are all refused, and
//! nothing is left of what was read before. The reader takes exactly the bytes of the checkpoint and no more.

use std::io::{ErrorKind, Read, Write};
use std::sync::{Arc, mpsc};

use thiserror::Error;

use crate::entries::Facts;
use crate::index::{Builder, Context, Ids, Place};
use crate::users;
use crate::{Entry, Error as UserError, Order, RankTree, Ties, Users};

const MAGIC: &[u8; 8] = b"RANKTREE";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 8 + 4 + 1 + 8;
const ORDER_AT: usize = 8 + 4;
const USERS_AT: usize = 8 + 4 + 1;
const BLOCK_HEAD_BYTES: usize = 12;
const BLOCK_BYTES: usize = 64 * 1024;
/// Blocks that may be read before they are needed.
const BLOCKS_AHEAD: usize = 4;
/// Rows whose ids are gathered at once.
const GROUP: usize = 256;
/// What a block can hold at most: one row may go over the border.
const BLOCK_BYTES_MAX: usize = BLOCK_BYTES + 2 * 10 + 1 + 255;

/// Why a checkpoint could not be written or read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The stream failed.
    #[error("the checkpoint could not be read or written: {0}")]
    Io(#[from] std::io::Error),
    /// The stream does not begin like a checkpoint.
    #[error("this is not a checkpoint of a rank tree; rebuild from the table instead")]
    NotACheckpoint,
    /// It was written by a newer release.
    #[error(
        "the checkpoint has format {found}, this release reads {VERSION}; rebuild from the table instead"
    )]
    Version {
        /// The format it says it has.
        found: u32,
    },
    /// The board is turned the other way.
    #[error(
        "the checkpoint is of a board on which {found:?} wins, not of this one; rebuild from the table instead"
    )]
    OtherOrder {
        /// The order it was written with.
        found: Order,
    },
    /// It ends before its end.
    #[error("the checkpoint is cut off in block {block}; rebuild from the table instead")]
    Truncated {
        /// The block that is not whole.
        block: u32,
    },
    /// Some of its bytes are not those that were written.
    #[error("the checkpoint is damaged in block {block}: {what}; rebuild from the table instead")]
    Damaged {
        /// The block that is damaged.
        block: u32,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A user could not be added.
    #[error("the checkpoint holds a user that cannot be added: {0}")]
    User(#[from] UserError),
}

impl RankTree {
    /// Writes all users and their entries.
    ///
    /// # Errors
    /// If the stream fails. It is not flushed to a disk here: that is for whoever opened it.
    pub fn write_checkpoint(&self, to: impl Write) -> Result<(), CheckpointError> {
        let mut writer = CheckpointWriter::new(to, self.order, self.len())?;
        let mut standings = self.standings(0, Ties::First);
        let mut rows = Vec::with_capacity(GROUP);
        let mut ids = String::new();
        let mut buffer = users::buffer();
        loop {
            // The ids of many rows are gathered at once: one turn at the lock, and loads that overlap. Nothing is written to the
            // stream, which may be slow, while others wait for the lock.
            let group = standings.by_ref().take(GROUP).collect::<Vec<_>>();
            if group.is_empty() {
                return writer.finish();
            }
            rows.clear();
            ids.clear();
            let users = self.users.read();
            for standing in group {
                let id = users.id(standing.user, &mut buffer).expect("a tree's users are in use");
                ids.push_str(id);
                rows.push((ids.len(), standing.entry));
            }
            drop(users);
            let mut start = 0;
            for (end, entry) in &rows {
                writer.push(&ids[start..*end], *entry)?;
                start = *end;
            }
        }
    }

    /// Reads a tree from a checkpoint; its users join `users`.
    ///
    /// The stream is read and verified by a thread of its own, while this one puts users in their places.
    ///
    /// # Errors
    /// If the stream fails, is not a whole and undamaged checkpoint, or is of a board with another order.
    pub fn read_checkpoint(
        order: Order,
        users: Arc<Users>,
        from: impl Read + Send,
    ) -> Result<Self, CheckpointError> {
        let mut reader = CheckpointReader::new(from, order)?;
        let mut tree = RankTree::new(order, users);
        tree.reserve(reader.users_expected);
        let mut load = Load { tree, builder: Builder::new(), in_order: true };
        std::thread::scope(|scope| {
            let (send, blocks) = mpsc::sync_channel(BLOCKS_AHEAD);
            scope.spawn(move || {
                // Ends after the last block or an error, or when nobody takes the blocks any more.
                while let Some(block) = reader.next_block().transpose() {
                    let failed = block.is_err();
                    if send.send(block).is_err() || failed {
                        break;
                    }
                }
            });
            blocks.into_iter().try_for_each(|block| load.add(&block?))
        })?;
        Ok(load.finish())
    }
}

/// A tree that is being loaded.
struct Load {
    tree: RankTree,
    builder: Builder,
    /// All rows so far came in order, and are in the builder.
    in_order: bool,
}

impl Load {
    fn add(&mut self, block: &Block) -> Result<(), CheckpointError> {
        let Load { tree, builder, in_order } = self;
        tree.entries.suggest_origin(block.rows.iter().map(|row| row.1.reached_at));
        let mut users = tree.users.write();
        let joined = users.acquire_all(block.ids())?;
        let rows =
            || joined.iter().zip(&block.rows).map(|(user, row)| (*user, tree.order.key(row.1.score), row.1));
        let places: Vec<Place> =
            rows().map(|(user, key, entry)| Place { key, time: entry.reached_at, user }).collect();
        for place in &places {
            if tree.entries.set(place.user, Facts { key: place.key, time: place.time }).is_some() {
                users.release(place.user);
                *in_order = false;
            }
        }
        let context = Context { entries: &tree.entries, users: Ids::Held(&users) };
        for place in places {
            *in_order = *in_order && builder.accepts(context, place);
            if !*in_order {
                break;
            }
            builder.push(place);
        }
        Ok(())
    }

    fn finish(self) -> RankTree {
        let Load { mut tree, builder, in_order } = self;
        tree.entries.finish_load();
        if in_order {
            tree.index = builder.finish();
        } else {
            tree.sort();
        }
        tree
    }
}

/// Writes a checkpoint row by row.
///
/// For callers that gather rows in pages while the tree changes: rows need not be in order, and of several entries of one user the last
/// counts. Such a caller pushes again whoever changed since it began; who has left in between cannot be said here and is to be
/// removed after the load.
#[derive(Debug)]
pub struct CheckpointWriter<W> {
    to: W,
    rows: Vec<u8>,
    row_count: u32,
    block: u32,
    users: u64,
    last: Entry,
}

const ORIGIN: Entry = Entry { score: 0, reached_at: 0 };

impl<W: Write> CheckpointWriter<W> {
    /// Writes the header. `users` is about how many users are going to come: a load makes room for them.
    ///
    /// # Errors
    /// If the stream fails.
    pub fn new(mut to: W, order: Order, users: u64) -> Result<Self, CheckpointError> {
        let mut header = Vec::with_capacity(HEADER_BYTES + 4);
        header.extend_from_slice(MAGIC);
        header.extend_from_slice(&VERSION.to_le_bytes());
        header.push(order_code(order));
        header.extend_from_slice(&users.to_le_bytes());
        seal(&mut header);
        to.write_all(&header)?;
        let rows = vec![0; BLOCK_HEAD_BYTES];
        Ok(CheckpointWriter { to, rows, row_count: 0, block: 0, users: 0, last: ORIGIN })
    }

    /// Adds a row.
    ///
    /// # Errors
    /// If the stream fails or the id is not one a tree can hold.
    pub fn push(&mut self, id: &str, entry: Entry) -> Result<(), CheckpointError> {
        let length = u8::try_from(id.len()).ok().filter(|length| (1..=254).contains(length));
        let length = length.ok_or(UserError::IdLength { bytes: id.len() })?;
        put_varint(&mut self.rows, zigzag(entry.score.wrapping_sub(self.last.score)));
        put_varint(&mut self.rows, zigzag(entry.reached_at.wrapping_sub(self.last.reached_at) as i64));
        self.rows.push(length);
        self.rows.extend_from_slice(id.as_bytes());
        self.last = entry;
        self.row_count += 1;
        self.users += 1;
        if self.rows.len() >= BLOCK_HEAD_BYTES + BLOCK_BYTES {
            self.write_block()?;
        }
        Ok(())
    }

    /// Writes the end, without which the checkpoint is refused.
    ///
    /// # Errors
    /// If the stream fails.
    pub fn finish(mut self) -> Result<(), CheckpointError> {
        if self.row_count > 0 {
            self.write_block()?;
        }
        let mut end = Vec::with_capacity(BLOCK_HEAD_BYTES + 12);
        end.extend_from_slice(&self.block.to_le_bytes());
        end.extend_from_slice(&[0; 8]);
        end.extend_from_slice(&self.users.to_le_bytes());
        seal(&mut end);
        self.to.write_all(&end)?;
        self.to.flush()?;
        Ok(())
    }

    fn write_block(&mut self) -> Result<(), CheckpointError> {
        let bytes = (self.rows.len() - BLOCK_HEAD_BYTES) as u32;
        self.rows[..4].copy_from_slice(&self.block.to_le_bytes());
        self.rows[4..8].copy_from_slice(&self.row_count.to_le_bytes());
        self.rows[8..12].copy_from_slice(&bytes.to_le_bytes());
        seal(&mut self.rows);
        self.to.write_all(&self.rows)?;
        self.rows.truncate(BLOCK_HEAD_BYTES);
        self.block += 1;
        self.row_count = 0;
        self.last = ORIGIN;
        Ok(())
    }
}

struct CheckpointReader<R> {
    from: R,
    bytes: Vec<u8>,
    block: u32,
    users: u64,
    users_expected: u64,
}

impl<R: Read> CheckpointReader<R> {
    fn new(from: R, order: Order) -> Result<Self, CheckpointError> {
        let mut reader = CheckpointReader { from, bytes: Vec::new(), block: 0, users: 0, users_expected: 0 };
        match reader.read_sealed(HEADER_BYTES) {
            Err(CheckpointError::Truncated { .. }) if !reader.bytes.starts_with(MAGIC) => {
                return Err(CheckpointError::NotACheckpoint);
            }
            Ok(()) => {}
            Err(error) => return Err(error),
        }
        let (magic, rest) = reader.bytes.split_at(MAGIC.len());
        if magic != MAGIC {
            return Err(CheckpointError::NotACheckpoint);
        }
        let found = u32_at(rest, 0);
        // A newer format may seal its header in another way: the version is told first.
        if found != VERSION {
            return Err(CheckpointError::Version { found });
        }
        reader.check_seal()?;
        let found = match reader.bytes[ORDER_AT] {
            0 => Order::High,
            1 => Order::Low,
            _ => return Err(reader.damaged("unknown order")),
        };
        if found != order {
            return Err(CheckpointError::OtherOrder { found });
        }
        reader.users_expected = u64_at(&reader.bytes, USERS_AT);
        Ok(reader)
    }

    /// The next block; `None` after the last.
    fn next_block(&mut self) -> Result<Option<Block>, CheckpointError> {
        self.bytes.clear();
        self.fill(BLOCK_HEAD_BYTES)?;
        let [number, rows, bytes] = [0, 4, 8].map(|at| u32_at(&self.bytes, at));
        if number != self.block {
            return Err(self.damaged("its number is not the next one"));
        }
        if bytes as usize > BLOCK_BYTES_MAX {
            return Err(self.damaged("its length is too large"));
        }
        let is_end = rows == 0 && bytes == 0;
        self.fill(if is_end { 8 } else { bytes as usize } + 4)?;
        self.check_seal()?;
        if is_end {
            let users = u64_at(&self.bytes, BLOCK_HEAD_BYTES);
            if users != self.users {
                return Err(self.damaged("the number of users is not that of the rows"));
            }
            return Ok(None);
        }
        self.block += 1;
        self.users += u64::from(rows);
        let content = &self.bytes[BLOCK_HEAD_BYTES..BLOCK_HEAD_BYTES + bytes as usize];
        let mut block = Block { text: String::with_capacity(content.len()), rows: Vec::new() };
        for row in (Rows { content, left: rows, block: self.block - 1, last: ORIGIN }) {
            let (id, entry) = row?;
            block.text.push_str(id);
            block.rows.push((block.text.len(), entry));
        }
        Ok(Some(block))
    }

    fn read_sealed(&mut self, bytes: usize) -> Result<(), CheckpointError> {
        self.bytes.clear();
        self.fill(bytes + 4)
    }

    /// Reads this many more bytes.
    fn fill(&mut self, bytes: usize) -> Result<(), CheckpointError> {
        let start = self.bytes.len();
        self.bytes.resize(start + bytes, 0);
        let mut filled = start;
        while filled < self.bytes.len() {
            match self.from.read(&mut self.bytes[filled..]) {
                Ok(0) => {
                    self.bytes.truncate(filled);
                    return Err(CheckpointError::Truncated { block: self.block });
                }
                Ok(more) => filled += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn check_seal(&self) -> Result<(), CheckpointError> {
        let (content, seal) = self.bytes.split_at(self.bytes.len() - 4);
        if crc32fast::hash(content) != u32_at(seal, 0) {
            return Err(self.damaged("its checksum does not match"));
        }
        Ok(())
    }

    fn damaged(&self, what: &'static str) -> CheckpointError {
        CheckpointError::Damaged { block: self.block, what }
    }
}

/// Ids and entries of one block.
struct Block {
    /// The ids, back to back.
    text: String,
    /// Where each id ends, and the entry.
    rows: Vec<(usize, Entry)>,
}

impl Block {
    fn ids(&self) -> impl Iterator<Item = &str> {
        let starts = std::iter::once(0).chain(self.rows.iter().map(|row| row.0));
        starts.zip(&self.rows).map(|(start, row)| &self.text[start..row.0])
    }
}

/// The rows of one block as they are written.
struct Rows<'a> {
    content: &'a [u8],
    left: u32,
    block: u32,
    last: Entry,
}

impl<'a> Iterator for Rows<'a> {
    type Item = Result<(&'a str, Entry), CheckpointError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            let rest = std::mem::take(&mut self.content);
            return (!rest.is_empty()).then(|| Err(self.damaged("it holds more than its rows")));
        }
        let row = self.take_row();
        // The checksum matched, so a row that does not parse was written so; one error ends the block.
        self.left = if row.is_some() { self.left - 1 } else { 0 };
        if row.is_none() {
            self.content = &[];
        }
        Some(row.ok_or_else(|| self.damaged("a row does not parse")))
    }
}

impl<'a> Rows<'a> {
    #[inline]
    fn take_row(&mut self) -> Option<(&'a str, Entry)> {
        let score = self.last.score.wrapping_add(unzigzag(self.take_varint()?));
        let reached_at = self.last.reached_at.wrapping_add(unzigzag(self.take_varint()?) as u64);
        let (length, rest) = self.content.split_first()?;
        let (id, rest) = rest.split_at_checked(usize::from(*length))?;
        self.content = rest;
        self.last = Entry { score, reached_at };
        Some((str::from_utf8(id).ok()?, self.last))
    }

    #[inline]
    fn take_varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..70).step_by(7) {
            let (byte, rest) = self.content.split_first()?;
            self.content = rest;
            value |= u64::from(byte & 0x7F).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn damaged(&self, what: &'static str) -> CheckpointError {
        CheckpointError::Damaged { block: self.block, what }
    }
}

/// Appends the checksum of what is there.
fn seal(bytes: &mut Vec<u8>) {
    let crc = crc32fast::hash(bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn order_code(order: Order) -> u8 {
    match order {
        Order::High => 0,
        Order::Low => 1,
    }
}

fn put_varint(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

/// Small numbers of either sign become small numbers.
fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}
