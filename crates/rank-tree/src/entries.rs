//! What a tree knows of each of its users: the order key of the score and when it was reached.
//!
//! A map from [`UserKey`] to 16 bytes of facts, kept in about ten:
//! - A tree of fewer than [`SMALL_MAX`] users is a hash map; most boards are small.
//! - A larger one is pages of 4,096 neighbouring users.
//!   A page with few users (a board that only part of the game's users play) is a short sorted list. A page with
//!   many is an array of ten bytes a user: the key in four, the time in six as its distance from an origin in the middle of
//!   the times the tree held when it became large. Where a key or a time does not fit, that page alone becomes an array of sixteen bytes a user.
//!
//! All four forms are exact; which one a user is in shows only in memory and time.

use foldhash::{HashMap, HashMapExt};

use crate::users::UserKey;

/// Above this many users a tree uses pages; it goes back below a quarter of it.
const SMALL_MAX: usize = if cfg!(test) { 64 } else { 16_384 };
const PAGE: usize = if cfg!(test) { 64 } else { 4_096 };
/// Above this many users a page is an array; it goes back below a quarter of it.
const FEW_MAX: usize = if cfg!(test) { 8 } else { 512 };
/// The offset of 48 bits that stands for "no such user here".
const ABSENT: i64 = -(1 << 47);

/// The order key of a user's score and the time it was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) key: i64,
    pub(crate) time: u64,
}

#[derive(Debug)]
pub(crate) struct Entries {
    form: Form,
    count: usize,
    /// Narrow pages keep times as distances from this one.
    origin: Option<u64>,
    /// Many users are coming: new pages are arrays from the start.
    loading: bool,
}

#[derive(Debug)]
enum Form {
    Small(HashMap<UserKey, Facts>),
    Large(Vec<Page>),
}

#[derive(Debug)]
struct Page {
    users: u32,
    form: PageForm,
}

#[derive(Debug)]
enum PageForm {
    /// Sorted by place in the page.
    Few(Vec<(u16, Facts)>),
    Narrow(Box<[Narrow; PAGE]>),
    Wide(Box<Wide>),
}

/// Four bytes of key, six of time; see [`ABSENT`].
type Narrow = [u8; 10];

/// Sixteen bytes a user, and a bit for whether there is one.
#[derive(Debug)]
struct Wide {
    present: [u64; PAGE / 64],
    facts: [Facts; PAGE],
}

impl Wide {
    fn new(users: impl Iterator<Item = (usize, Facts)>) -> Box<Self> {
        let mut wide = Box::new(Wide { present: [0; PAGE / 64], facts: [Facts { key: 0, time: 0 }; PAGE] });
        for (place, facts) in users {
            wide.set(place, Some(facts));
        }
        wide
    }

    fn get(&self, place: usize) -> Option<Facts> {
        (self.present[place / 64] >> (place % 64) & 1 == 1).then(|| self.facts[place])
    }

    fn set(&mut self, place: usize, facts: Option<Facts>) -> Option<Facts> {
        let before = self.get(place);
        let bit = 1 << (place % 64);
        match facts {
            Some(facts) => {
                self.facts[place] = facts;
                self.present[place / 64] |= bit;
            }
            None => self.present[place / 64] &= !bit,
        }
        before
    }
}

impl Entries {
    pub(crate) fn new() -> Self {
        Entries { form: Form::Small(HashMap::new()), count: 0, origin: None, loading: false }
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Prepares for a load of about `expected` of `all` users, which [`Entries::finish_load`] ends.
    pub(crate) fn start_load(&mut self, expected: usize, all: usize) {
        if expected > SMALL_MAX && matches!(self.form, Form::Small(_)) {
            self.loading = expected / (all / PAGE + 1) > FEW_MAX;
            self.enlarge();
        }
    }

    /// Takes the middle one of these times as the origin of times to come, if there is none yet: the very first may be an odd one.
    pub(crate) fn suggest_origin(&mut self, times: impl Iterator<Item = u64>) {
        if self.origin.is_none() {
            let mut times: Vec<u64> = times.collect();
            times.sort_unstable();
            self.origin = times.get(times.len() / 2).copied();
        }
    }

    /// Puts pages that the load left nearly empty into their small form.
    pub(crate) fn finish_load(&mut self) {
        self.loading = false;
        let origin = self.origin.unwrap_or(0);
        if let Form::Large(pages) = &mut self.form {
            pages.iter_mut().for_each(|page| page.shrink(origin));
        }
    }

    #[inline]
    pub(crate) fn get(&self, user: UserKey) -> Option<Facts> {
        match &self.form {
            Form::Large(pages) => {
                let (page, place) = page_of(user);
                pages.get(page)?.get(place, self.origin.unwrap_or(0))
            }
            Form::Small(map) => map.get(&user).copied(),
        }
    }

    /// The facts of a user the tree holds.
    #[inline]
    pub(crate) fn known(&self, user: UserKey) -> Facts {
        self.get(user).expect("the index holds only users with an entry")
    }

    pub(crate) fn set(&mut self, user: UserKey, facts: Facts) -> Option<Facts> {
        let before = match &mut self.form {
            Form::Small(map) => map.insert(user, facts),
            Form::Large(pages) => {
                let origin = *self.origin.get_or_insert(facts.time);
                let (page, place) = page_of(user);
                if page >= pages.len() {
                    let empty = if self.loading { Page::empty_array } else { Page::empty };
                    pages.resize_with(page + 1, empty);
                }
                pages[page].set(place, facts, origin)
            }
        };
        if before.is_none() {
            self.count += 1;
            if self.count > SMALL_MAX && matches!(self.form, Form::Small(_)) {
                self.enlarge();
            }
        }
        before
    }

    pub(crate) fn remove(&mut self, user: UserKey) -> Option<Facts> {
        let origin = self.origin.unwrap_or(0);
        let before = match &mut self.form {
            Form::Small(map) => map.remove(&user),
            Form::Large(pages) => {
                let (page, place) = page_of(user);
                pages.get_mut(page).and_then(|page| page.remove(place, origin))
            }
        };
        if before.is_some() {
            self.count -= 1;
            if self.count < SMALL_MAX / 4 && matches!(self.form, Form::Large(_)) {
                let users: Vec<_> = self.iter().collect();
                self.form = Form::Small(users.into_iter().collect());
            }
        }
        before
    }

    /// All users in no particular order.
    pub(crate) fn iter(&self) -> Box<dyn Iterator<Item = (UserKey, Facts)> + '_> {
        let origin = self.origin.unwrap_or(0);
        match &self.form {
            Form::Small(map) => Box::new(map.iter().map(|(user, facts)| (*user, *facts))),
            Form::Large(pages) => Box::new(pages.iter().enumerate().flat_map(move |(page, content)| {
                let first = (page * PAGE) as u32;
                content.iter(origin).map(move |(place, facts)| (UserKey(first + place as u32), facts))
            })),
        }
    }

    /// Heap bytes.
    pub(crate) fn memory(&self) -> usize {
        match &self.form {
            Form::Small(map) => map.capacity() * 8 / 7 * (size_of::<(UserKey, Facts)>() + 1),
            Form::Large(pages) => {
                pages.iter().map(Page::memory).sum::<usize>() + pages.capacity() * size_of::<Page>()
            }
        }
    }

    fn enlarge(&mut self) {
        let Form::Small(map) = std::mem::replace(&mut self.form, Form::Large(Vec::new())) else {
            unreachable!("only a small tree is enlarged")
        };
        self.count = 0;
        self.suggest_origin(map.values().map(|facts| facts.time));
        for (user, facts) in map {
            self.set(user, facts);
        }
    }
}

#[inline]
fn page_of(user: UserKey) -> (usize, usize) {
    (user.0 as usize / PAGE, user.0 as usize % PAGE)
}

impl Page {
    fn empty() -> Self {
        Page { users: 0, form: PageForm::Few(Vec::new()) }
    }

    fn empty_array() -> Self {
        Page { users: 0, form: PageForm::Narrow(Box::new([NARROW_ABSENT; PAGE])) }
    }

    #[inline]
    fn get(&self, place: usize, origin: u64) -> Option<Facts> {
        match &self.form {
            PageForm::Narrow(rows) => unpack(&rows[place], origin),
            PageForm::Few(rows) => {
                let found = rows.binary_search_by_key(&(place as u16), |row| row.0).ok()?;
                Some(rows[found].1)
            }
            PageForm::Wide(wide) => wide.get(place),
        }
    }

    fn set(&mut self, place: usize, facts: Facts, origin: u64) -> Option<Facts> {
        let before = match &mut self.form {
            PageForm::Narrow(rows) => match pack(facts, origin) {
                Some(row) => unpack(&std::mem::replace(&mut rows[place], row), origin),
                None => {
                    let mut wide = Wide::new(self.iter(origin));
                    let before = wide.set(place, Some(facts));
                    self.form = PageForm::Wide(wide);
                    before
                }
            },
            PageForm::Few(rows) => match rows.binary_search_by_key(&(place as u16), |row| row.0) {
                Ok(found) => Some(std::mem::replace(&mut rows[found].1, facts)),
                Err(at) => {
                    if rows.len() == rows.capacity() {
                        rows.reserve_exact((rows.len() / 4).max(1));
                    }
                    rows.insert(at, (place as u16, facts));
                    None
                }
            },
            PageForm::Wide(wide) => wide.set(place, Some(facts)),
        };
        if before.is_none() {
            self.users += 1;
            if let PageForm::Few(rows) = &self.form
                && rows.len() > FEW_MAX
            {
                self.form = array_of(rows, origin);
            }
        }
        before
    }

    fn remove(&mut self, place: usize, origin: u64) -> Option<Facts> {
        let before = match &mut self.form {
            PageForm::Narrow(rows) => unpack(&std::mem::replace(&mut rows[place], NARROW_ABSENT), origin),
            PageForm::Few(rows) => {
                let found = rows.binary_search_by_key(&(place as u16), |row| row.0).ok()?;
                Some(rows.remove(found).1)
            }
            PageForm::Wide(wide) => wide.set(place, None),
        };
        if before.is_some() {
            self.users -= 1;
            self.shrink(origin);
        }
        before
    }

    /// Takes the small form if few users are left.
    fn shrink(&mut self, origin: u64) {
        let shrinks = match &self.form {
            PageForm::Few(rows) => rows.capacity() > 0 && rows.is_empty(),
            _ => (self.users as usize) < FEW_MAX / 4,
        };
        if shrinks {
            let rows = self.iter(origin).map(|(place, facts)| (place as u16, facts)).collect();
            self.form = PageForm::Few(rows);
        }
    }

    fn iter(&self, origin: u64) -> Box<dyn Iterator<Item = (usize, Facts)> + '_> {
        match &self.form {
            PageForm::Few(rows) => Box::new(rows.iter().map(|(place, facts)| (usize::from(*place), *facts))),
            PageForm::Narrow(rows) => Box::new(
                rows.iter()
                    .enumerate()
                    .filter_map(move |(place, row)| unpack(row, origin).map(|facts| (place, facts))),
            ),
            PageForm::Wide(wide) => {
                Box::new((0..PAGE).filter_map(|place| wide.get(place).map(|facts| (place, facts))))
            }
        }
    }

    fn memory(&self) -> usize {
        match &self.form {
            PageForm::Few(rows) => rows.capacity() * size_of::<(u16, Facts)>(),
            PageForm::Narrow(_) => PAGE * size_of::<Narrow>(),
            PageForm::Wide(_) => size_of::<Wide>(),
        }
    }
}

const NARROW_ABSENT: Narrow = {
    let absent = ABSENT.to_le_bytes();
    [0, 0, 0, 0, absent[0], absent[1], absent[2], absent[3], absent[4], absent[5]]
};

fn array_of(few: &[(u16, Facts)], origin: u64) -> PageForm {
    let mut narrow = Box::new([NARROW_ABSENT; PAGE]);
    for (place, facts) in few {
        let Some(row) = pack(*facts, origin) else {
            return PageForm::Wide(Wide::new(few.iter().map(|(place, facts)| (usize::from(*place), *facts))));
        };
        narrow[usize::from(*place)] = row;
    }
    PageForm::Narrow(narrow)
}

/// Ten bytes for the facts, if they fit.
#[inline]
fn pack(facts: Facts, origin: u64) -> Option<Narrow> {
    let key = i32::try_from(facts.key).ok()?.to_le_bytes();
    let offset = facts.time.wrapping_sub(origin) as i64;
    if !(ABSENT + 1..=-(ABSENT + 1)).contains(&offset) {
        return None;
    }
    let time = offset.to_le_bytes();
    Some([key[0], key[1], key[2], key[3], time[0], time[1], time[2], time[3], time[4], time[5]])
}

#[inline]
fn unpack(row: &Narrow, origin: u64) -> Option<Facts> {
    let key = i32::from_le_bytes([row[0], row[1], row[2], row[3]]);
    let shifted = i64::from_le_bytes([0, 0, row[4], row[5], row[6], row[7], row[8], row[9]]);
    let offset = shifted >> 16;
    if offset == ABSENT {
        return None;
    }
    Some(Facts { key: i64::from(key), time: origin.wrapping_add(offset as u64) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap as Model;

    fn times() -> impl Strategy<Value = u64> {
        prop_oneof![1_700_000_000_000_000..1_700_000_900_000_000u64, any::<u64>(), Just(0), Just(u64::MAX)]
    }

    fn keys() -> impl Strategy<Value = i64> {
        prop_oneof![-100..100i64, any::<i64>(), Just(i64::MIN), Just(i64::MAX), Just(i64::from(i32::MIN))]
    }

    proptest! {
        #[test]
        fn what_fits_ten_bytes_comes_back(key in keys(), time in times(), origin in times()) {
            let facts = Facts { key, time };
            if let Some(row) = pack(facts, origin) {
                prop_assert_eq!(unpack(&row, origin), Some(facts));
            }
            prop_assert_eq!(unpack(&NARROW_ABSENT, origin), None);
        }

        #[test]
        fn a_page_is_a_map_in_every_form(
            steps in prop::collection::vec((0..PAGE, keys(), times(), any::<bool>()), 1..600),
            filled in any::<bool>(),
        ) {
            let origin = 1_700_000_000_000_000;
            let mut page = Page::empty();
            let mut model = Model::new();
            let ordinary = (0..if filled { FEW_MAX + 40 } else { 0 })
                .map(|n| (n * 3 % PAGE, n as i64, origin + n as u64, true));
            for (place, key, time, set) in ordinary.chain(steps) {
                let facts = Facts { key, time };
                if set {
                    prop_assert_eq!(page.set(place, facts, origin), model.insert(place, facts));
                } else {
                    prop_assert_eq!(page.remove(place, origin), model.remove(&place));
                }
                prop_assert_eq!(page.get(place, origin), model.get(&place).copied());
            }
            let content: Model<_, _> = page.iter(origin).collect();
            prop_assert_eq!(page.users as usize, content.len());
            prop_assert_eq!(content, model);
        }
    }

    #[test]
    fn a_tree_that_grows_and_shrinks_through_all_forms_keeps_its_entries() {
        let facts = |n: u32| Facts { key: i64::from(n) * 7, time: 1_000_000 + u64::from(n) };
        let user = |n: u32| UserKey(n * 3);
        let mut entries = Entries::new();
        for n in 0..60_000 {
            assert_eq!(entries.set(user(n), facts(n)), None);
        }
        for n in 0..60_000 {
            assert_eq!(entries.get(user(n)), Some(facts(n)));
        }
        for n in 10..60_000 {
            assert_eq!(entries.remove(user(n)), Some(facts(n)));
            assert_eq!(entries.remove(user(n)), None);
        }
        assert_eq!(entries.len(), 10);
        assert_eq!(entries.iter().count(), 10);
        assert!(matches!(entries.form, Form::Small(_)));
        assert!((0..10).all(|n| entries.get(user(n)) == Some(facts(n))));
    }
}
