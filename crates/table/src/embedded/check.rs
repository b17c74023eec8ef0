//! The check: each index holds exactly the rows its items call for.
//!
//! One walk over the items asks the schema for every row each item must have and looks it up; one count
//! of each index then tells whether there are rows beside those. Rows of different items differ, since each
//! ends with its item's key; so if every wanted row is there and the numbers agree, the two sets are the same. Only
//! if they do not agree is the index walked row by row, to name the ones too many. Memory stays
//! bounded whatever the size of the table. Everything is read from one snapshot.

use crate::embedded::Inner;
use crate::embedded::encoding;
use crate::embedded::engine::Space;
use crate::embedded::range::KeyRange;
use crate::error::Result;
use crate::item::{EXPIRES_AT, Item};
use crate::query::Direction;

/// At most so many differences are listed; all are counted.
const DIFFERENCES_MAX: usize = 100;

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Items looked at, expired ones included.
    pub items: u64,
    /// Rows of all indexes together.
    pub index_rows: u64,
    /// How many rows are missing, wrong or too many.
    pub differences: u64,
    /// The first of them, for people to read.
    pub examples: Vec<String>,
}

impl CheckReport {
    /// Whether everything agreed.
    pub fn is_clean(&self) -> bool {
        self.differences == 0
    }

    fn difference(&mut self, text: impl FnOnce() -> String) {
        self.differences += 1;
        if self.examples.len() < DIFFERENCES_MAX {
            self.examples.push(text());
        }
    }
}

/// Compares every index with the items.
pub(crate) fn run(inner: &Inner) -> Result<CheckReport> {
    let (engine, indexes) = (&inner.engine, inner.schema.indexes());
    let snapshot = engine.snapshot();
    let everything = KeyRange { start: vec![], end: None };
    let mut report = CheckReport::default();
    let mut wanted = vec![0_u64; indexes.len()];
    let mut wanted_expiry = 0_u64;

    engine.walk_at(&snapshot, Space::Items, &everything, Direction::Forward, |key, value| {
        let item =
            encoding::decode_item(key, value).map_err(|detail| engine.corrupt(Space::Items, key, detail))?;
        report.items += 1;
        for (at, index) in indexes.iter().enumerate() {
            let Some(place) = index.place_of(&item) else { continue };
            wanted[at] += 1;
            let row = encoding::index_key(&place.partition, &place.sort, &item.key);
            match engine.get_at(&snapshot, Space::Index(at), &row)? {
                None => report.difference(|| format!("{}: the row of {} is missing", index.name, item.key)),
                Some(stored)
                    if stored != encoding::slice(|bytes| encoding::push_index_value(bytes, index, &item)) =>
                {
                    report.difference(|| {
                        format!("{}: the row of {} shows something else", index.name, item.key)
                    });
                }
                Some(_) => {}
            }
        }
        if let Some(expires_at) = item.number(EXPIRES_AT) {
            wanted_expiry += 1;
            if engine.get_at(&snapshot, Space::Expiry, &encoding::expiry_key(expires_at, key))?.is_none() {
                report.difference(|| format!("expiry: the row of {} is missing", item.key));
            }
        }
        Ok(true)
    })?;

    let spaces = (0..indexes.len()).map(Space::Index).chain([Space::Expiry]);
    for (space, wanted) in spaces.zip(wanted.into_iter().chain([wanted_expiry])) {
        let mut found = 0_u64;
        engine.walk_at(&snapshot, space, &everything, Direction::Forward, |_, _| {
            found += 1;
            Ok(true)
        })?;
        if space != Space::Expiry {
            report.index_rows += found;
        }
        if found == wanted {
            continue;
        }
        engine.walk_at(&snapshot, space, &everything, Direction::Forward, |row, _| {
            let damaged = |detail| engine.corrupt(space, row, detail);
            let key = match space {
                Space::Index(at) => {
                    encoding::decode_index_key(row, indexes[at].sort_type).map_err(damaged)?.2
                }
                _ => encoding::decode_expiry_key(row).map_err(damaged)?.1,
            };
            let item_key = encoding::item_key(&key);
            let item = match engine.get_at(&snapshot, Space::Items, &item_key)? {
                Some(value) => Some(encoding::decode_item(&item_key, &value).map_err(damaged)?),
                None => None,
            };
            let called_for = |item: &Item| match space {
                Space::Index(at) => indexes[at].place_of(item).is_some_and(|place| {
                    encoding::index_key(&place.partition, &place.sort, &item.key) == row
                }),
                _ => item.number(EXPIRES_AT).is_some_and(|at| encoding::expiry_key(at, &item_key) == row),
            };
            if !item.as_ref().is_some_and(called_for) {
                report.difference(|| format!("{space:?}: a row of {key} that the item does not call for"));
            }
            Ok(true)
        })?;
    }
    Ok(report)
}
