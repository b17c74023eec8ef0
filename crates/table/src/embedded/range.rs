//! From queries and scans to ranges of keys on disk.

use crate::embedded::encoding::{self, HASHES};
use crate::query::{Direction, Position, Query, Scan, SortRange};

/// Keys from `start` (included) to `end` (not included; nothing means to the last key).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyRange {
    pub(crate) start: Vec<u8>,
    pub(crate) end: Option<Vec<u8>>,
}

impl KeyRange {
    /// Whether no key can be in it; the engine must not be asked for such a range.
    pub(crate) fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.start)
    }

    /// All keys that begin with these bytes.
    fn prefix(prefix: Vec<u8>) -> Self {
        let end = after_prefix(&prefix);
        Self { start: prefix, end }
    }
}

/// The keys of the table itself that a query wants.
pub(crate) fn of_table_query(query: &Query) -> KeyRange {
    use crate::key::SortValue::{Number, String};
    let partition = encoding::item_partition(&query.partition);
    let at = |sort: &crate::key::SortValue| match sort {
        String(text) => [partition.as_slice(), text.as_bytes()].concat(),
        // Refused before this is reached; the empty sort key below it holds no items.
        Number(_) => partition.clone(),
    };
    let end = after_prefix(&partition);
    let mut range = match &query.sort {
        SortRange::All => KeyRange::prefix(partition.clone()),
        SortRange::Equals(value) => KeyRange { start: at(value), end: Some(just_after(at(value))) },
        SortRange::BeginsWith(text) => KeyRange::prefix([partition.as_slice(), text.as_bytes()].concat()),
        SortRange::Between(low, high) => KeyRange { start: at(low), end: Some(just_after(at(high))) },
        SortRange::Less(value) => KeyRange { start: partition.clone(), end: Some(at(value)) },
        SortRange::Greater(value) => KeyRange { start: just_after(at(value)), end },
    };
    if let Some(position) = &query.start_after {
        go_on(&mut range, encoding::item_key(&position.key), query.direction);
    }
    range
}

/// The keys of an index that a query wants.
pub(crate) fn of_index_query(query: &Query) -> KeyRange {
    let partition = encoding::index_partition(&query.partition);
    let at = |sort: &crate::key::SortValue| {
        let mut bytes = partition.clone();
        encoding::push_sort(&mut bytes, sort.into());
        bytes
    };
    let mut range = match &query.sort {
        SortRange::All => KeyRange::prefix(partition.clone()),
        SortRange::Equals(value) => KeyRange::prefix(at(value)),
        SortRange::BeginsWith(text) => {
            let mut prefix = partition.clone();
            encoding::push_escaped_prefix(&mut prefix, text);
            KeyRange::prefix(prefix)
        }
        SortRange::Between(low, high) => KeyRange { start: at(low), end: after_prefix(&at(high)) },
        SortRange::Less(value) => KeyRange { start: partition.clone(), end: Some(at(value)) },
        SortRange::Greater(value) => KeyRange {
            start: after_prefix(&at(value)).unwrap_or_else(|| at(value)),
            end: after_prefix(&partition),
        },
    };
    if let Some(Position { key, sort: Some(sort) }) = &query.start_after {
        go_on(&mut range, encoding::index_key(&query.partition, sort, key), query.direction);
    }
    range
}

/// The keys of the table itself in a segment of a scan.
pub(crate) fn of_scan(scan: &Scan) -> KeyRange {
    // The first hash of a segment; one past the last hash stands for the end of the table.
    let first_hash = |segment: usize| segment * HASHES / scan.segments;
    let bytes = |hash: usize| u16::try_from(hash).ok().map(|hash| hash.to_be_bytes().to_vec());
    let mut range = match bytes(first_hash(scan.segment)) {
        Some(start) => KeyRange { start, end: bytes(first_hash(scan.segment + 1)) },
        None => KeyRange { start: vec![0], end: Some(vec![0]) },
    };
    if let Some(position) = &scan.start_after {
        go_on(&mut range, encoding::item_key(&position.key), Direction::Forward);
    }
    range
}

/// Narrows the range to what lies behind `position`, in the direction of reading.
fn go_on(range: &mut KeyRange, position: Vec<u8>, direction: Direction) {
    match direction {
        Direction::Forward => {
            let start = just_after(position);
            if start > range.start {
                range.start = start;
            }
        }
        Direction::Backward => {
            if range.end.as_ref().is_none_or(|end| position < *end) {
                range.end = Some(position);
            }
        }
    }
}

/// The smallest key greater than this one.
fn just_after(mut key: Vec<u8>) -> Vec<u8> {
    key.push(0);
    key
}

/// The smallest key greater than all that begin with `prefix`, if there is one.
fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xFF)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}
