//! [`RankTree`]: users, their entries and their order, changed together.
//!
//! Three parts hold the same users: `users` (shared with other trees) maps an id to a key and holds one use for each
//! user of this tree; `entries` maps the key to score and time; `index` keeps the keys in order and reads `entries` to
//! compare. A change therefore goes: out of the index while the entry is still the old one, then the entry, then into
//! the index.

use std::sync::Arc;

use crate::entries::{Entries, Facts};
use crate::index::{Builder, Context, Ids, Index, Place, WARM_GROUP};
use crate::users::{self, Table};
use crate::{Error, Order, UserKey, Users};

/// Room is never made for more users than this in advance, whatever a caller or a file promises.
const RESERVE_MAX: u64 = 100_000_000;
/// A batch of more than a quarter of the tree's users and this many sorts everybody anew.
const REBUILD_MIN: u64 = if cfg!(test) { 4 } else { 1_000 };

/// A user's score and when it was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The score; all 64 bits are exact.
    pub score: i64,
    /// When the user got there, in microseconds since whatever epoch the caller uses.
    pub reached_at: u64,
}

/// One change of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Update<'a> {
    /// Whom it is about.
    pub user: &'a str,
    /// The new entry; `None` removes the user.
    pub entry: Option<Entry>,
}

/// Where the memory of a tree goes, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// The ids of all users, with their lengths and uses; shared between trees.
    pub ids: usize,
    /// The hash table that finds a user by id; shared between trees.
    pub id_table: usize,
    /// Scores and times.
    pub entries: usize,
    /// The order.
    pub index: usize,
}

/// Ranks users by score: who stands where, in logarithmic time, in few bytes a user.
///
/// ```
/// use std::sync::Arc;
/// use rank_tree::{Entry, Order, RankTree, Ties, Users};
///
/// let mut tree = RankTree::new(Order::High, Arc::new(Users::new()));
/// tree.set("ann", Entry { score: 70, reached_at: 1 })?;
/// tree.set("bob", Entry { score: 90, reached_at: 2 })?;
/// tree.set("eve", Entry { score: 70, reached_at: 3 })?;
/// assert_eq!(tree.rank("eve", Ties::Shared), Some(2));
/// assert_eq!(tree.rank("eve", Ties::First), Some(3));
/// # Ok::<(), rank_tree::Error>(())
/// ```
#[derive(Debug)]
pub struct RankTree {
    pub(crate) order: Order,
    pub(crate) users: Arc<Users>,
    pub(crate) entries: Entries,
    pub(crate) index: Index,
}

impl RankTree {
    /// An empty tree whose users are among `users`, which other trees may share.
    pub fn new(order: Order, users: Arc<Users>) -> Self {
        RankTree { order, users, entries: Entries::new(), index: Index::new() }
    }

    /// A tree of all these users, in any order; of several entries of one user the last counts. Much faster than
    /// setting them one by one.
    ///
    /// # Errors
    /// As [`RankTree::set`], for the first user that cannot be added.
    pub fn from_unsorted<S: AsRef<str>>(
        order: Order,
        users: Arc<Users>,
        rows: impl IntoIterator<Item = (S, Entry)>,
    ) -> Result<Self, Error> {
        let mut tree = RankTree::new(order, users);
        let mut rows = rows.into_iter();
        // The least the iterator promises; a wrong promise costs time, not correctness.
        tree.reserve(rows.size_hint().0 as u64);
        loop {
            // The iterator is the caller's code: it does not run under our lock.
            let group: Vec<(S, Entry)> = rows.by_ref().take(1_024).collect();
            if group.is_empty() {
                break;
            }
            tree.entries.suggest_origin(group.iter().map(|row| row.1.reached_at));
            let mut users = tree.users.write();
            let joined = match users.acquire_all(group.iter().map(|row| row.0.as_ref())) {
                Ok(joined) => joined,
                Err(error) => {
                    // Dropping the tree gives its users back, which needs the lock.
                    drop(users);
                    return Err(error);
                }
            };
            for (user, row) in joined.into_iter().zip(group) {
                if tree.entries.set(user, tree.facts(row.1)).is_some() {
                    users.release(user);
                }
            }
        }
        tree.entries.finish_load();
        tree.sort();
        Ok(tree)
    }

    /// Which way is up.
    pub fn order(&self) -> Order {
        self.order
    }

    /// The ids behind the keys in rows.
    pub fn users(&self) -> &Arc<Users> {
        &self.users
    }

    /// How many users the tree holds.
    pub fn len(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Whether the tree holds no users.
    pub fn is_empty(&self) -> bool {
        self.entries.len() == 0
    }

    /// A user's entry.
    #[inline]
    pub fn get(&self, user: &str) -> Option<Entry> {
        let users = self.users.read();
        let (_, facts) = find(&users, &self.entries, user)?;
        Some(self.entry(facts))
    }

    /// Sets a user's entry and returns the one before.
    ///
    /// # Errors
    /// If the id is empty or too long, or there are too many users; nothing was changed then.
    pub fn set(&mut self, user: &str, entry: Entry) -> Result<Option<Entry>, Error> {
        self.update(user, |_| Some(entry))
    }

    /// Changes a user's entry by what it is: `change` gets the entry, `None` for a user who is not in the tree, and returns the new
    /// one, `None` to remove the user. Returns the entry before. Cheaper than [`RankTree::get`] and then [`RankTree::set`].
    ///
    /// # Errors
    /// If the user is new and the id is empty or too long, or there are too many users; nothing was changed then.
    #[inline]
    pub fn update(
        &mut self,
        user: &str,
        change: impl FnOnce(Option<Entry>) -> Option<Entry>,
    ) -> Result<Option<Entry>, Error> {
        let found = find(&self.users.read(), &self.entries, user);
        let Some((user, before)) = found else {
            if let Some(entry) = change(None) {
                self.add(user, entry)?;
            }
            return Ok(None);
        };
        let entry_before = self.entry(before);
        let after = change(Some(entry_before)).map(|entry| self.facts(entry));
        if after == Some(before) {
            return Ok(Some(entry_before));
        }
        let context = Context { entries: &self.entries, users: Ids::OnDemand(&self.users) };
        self.index.remove(context, place(user, before));
        match after {
            Some(after) => {
                self.entries.set(user, after);
                let context = Context { entries: &self.entries, users: Ids::OnDemand(&self.users) };
                self.index.insert(context, place(user, after));
            }
            None => {
                self.entries.remove(user);
                self.users.release(user);
                self.give_back_if_empty();
            }
        }
        Ok(Some(entry_before))
    }

    /// Removes a user and returns their entry.
    pub fn remove(&mut self, user: &str) -> Option<Entry> {
        self.update(user, |_| None).expect("removing adds no user")
    }

    /// Applies many changes, as if one by one; faster, because the work is ordered by place in memory and its waits
    /// overlap.
    ///
    /// # Errors
    /// As [`RankTree::set`]; then none of the changes was made.
    pub fn apply(&mut self, updates: &[Update<'_>]) -> Result<(), Error> {
        let changes = self.resolve(updates)?;
        if changes.len() as u64 > self.len() / 4 + REBUILD_MIN {
            self.rebuild_with(&changes);
        } else {
            self.make(&changes);
        }
        self.give_back_if_empty();
        Ok(())
    }

    /// Removes everybody.
    pub fn clear(&mut self) {
        self.release_users();
        self.entries = Entries::new();
        self.index = Index::new();
    }

    /// Where the memory goes. The ids are those of all trees that share them.
    pub fn memory(&self) -> Memory {
        let (ids, id_table) = self.users.memory();
        Memory { ids, id_table, entries: self.entries.memory(), index: self.index.memory() }
    }

    /// Checks every invariant of the tree, in time proportional to its size; says what is broken.
    ///
    /// # Errors
    /// The first broken invariant, in words.
    pub fn verify(&self) -> Result<(), String> {
        self.index.verify(self.context())?;
        let mut entries = self.entries.iter();
        let mut buffer = users::buffer();
        loop {
            // In groups, so that others get at the lock in between.
            let users = self.users.read();
            for _ in 0..1_024 {
                let Some((user, _)) = entries.next() else { return Ok(()) };
                let id = users.id(user, &mut buffer).ok_or_else(|| format!("{user:?} has no id"))?;
                if users.find(id) != Some(user) {
                    return Err(format!("{user:?} is not found by its id {id:?}"));
                }
            }
        }
    }

    /// What comparisons need, for work that takes long: the users' lock is taken when it is needed.
    pub(crate) fn context(&self) -> Context<'_> {
        Context { entries: &self.entries, users: Ids::OnDemand(&self.users) }
    }

    /// Makes room before a load of about this many users.
    pub(crate) fn reserve(&mut self, users: u64) {
        let known = self.users.len();
        // Who comes may be known already: more than the larger of the two is not made room for.
        let all = known.max(users.min(RESERVE_MAX) as usize);
        self.users.reserve(all);
        self.entries.start_load(users as usize, all);
    }

    fn add(&mut self, user: &str, entry: Entry) -> Result<(), Error> {
        let user = self.users.acquire(user)?;
        let facts = self.facts(entry);
        self.entries.set(user, facts);
        let context = Context { entries: &self.entries, users: Ids::OnDemand(&self.users) };
        self.index.insert(context, place(user, facts));
        Ok(())
    }

    #[inline]
    pub(crate) fn facts(&self, entry: Entry) -> Facts {
        Facts { key: self.order.key(entry.score), time: entry.reached_at }
    }

    #[inline]
    pub(crate) fn entry(&self, facts: Facts) -> Entry {
        Entry { score: self.order.score(facts.key), reached_at: facts.time }
    }

    /// Finds every user of a batch, makes new ones known, and keeps the last change of each.
    fn resolve(&mut self, updates: &[Update<'_>]) -> Result<Vec<Change>, Error> {
        let found = self.users.read().find_all(updates.iter().map(|update| update.user));
        let mut changes = Vec::with_capacity(updates.len());
        let mut acquired: Vec<UserKey> = Vec::new();
        let mut writing = None;
        for (number, (update, found)) in updates.iter().zip(found).enumerate() {
            let after = update.entry.map(|entry| self.facts(entry));
            let held = found.filter(|user| self.entries.get(*user).is_some());
            let user = match (held, after) {
                (Some(user), _) => user,
                (None, Some(_)) => {
                    let users = writing.get_or_insert_with(|| self.users.write());
                    let user = users.acquire(update.user).inspect_err(|_| {
                        acquired.iter().for_each(|user| users.release(*user));
                    })?;
                    acquired.push(user);
                    user
                }
                // It may have been added earlier in this batch.
                (None, None) => match writing.as_ref().and_then(|users| users.find(update.user)) {
                    Some(user) => user,
                    None => continue,
                },
            };
            changes.push(Change { user, number: number as u32, before: None, after });
        }
        drop(writing);
        changes.sort_unstable_by_key(|change| (change.user.0, change.number));
        changes.dedup_by(|later, kept| {
            let same = later.user == kept.user;
            if same {
                *kept = *later;
            }
            same
        });
        for change in &mut changes {
            change.before = self.entries.get(change.user);
        }
        // One use for each user that joins the tree: a user named twice, or added and removed in one batch, has more.
        acquired.sort_unstable_by_key(|user| user.0);
        let mut joined = None;
        for user in acquired {
            let found = changes.binary_search_by_key(&user.0, |change| change.user.0);
            let change = changes[found.expect("every acquired user has a change")];
            if change.after.is_none() || joined == Some(user) {
                self.users.release(user);
            }
            joined = Some(user);
        }
        changes.retain(|change| change.before != change.after);
        Ok(changes)
    }

    fn make(&mut self, changes: &[Change]) {
        let by_place = |place: &Place| (place.key, place.time);
        let mut out: Vec<Place> = changes
            .iter()
            .filter_map(|change| change.before.map(|facts| place(change.user, facts)))
            .collect();
        out.sort_unstable_by_key(by_place);
        let context = Context { entries: &self.entries, users: Ids::OnDemand(&self.users) };
        for group in out.chunks(WARM_GROUP) {
            self.index.warm(context, group);
            group.iter().for_each(|place| self.index.remove(context, *place));
        }
        self.write(changes);
        let mut into: Vec<Place> =
            changes.iter().filter_map(|change| change.after.map(|facts| place(change.user, facts))).collect();
        into.sort_unstable_by_key(by_place);
        let context = Context { entries: &self.entries, users: Ids::OnDemand(&self.users) };
        for group in into.chunks(WARM_GROUP) {
            self.index.warm(context, group);
            group.iter().for_each(|place| self.index.insert(context, *place));
        }
        self.release_leavers(changes);
    }

    /// For a batch about as large as the tree: sorting everybody anew is cheaper than moving them one by one.
    fn rebuild_with(&mut self, changes: &[Change]) {
        self.index = Index::new();
        self.write(changes);
        self.release_leavers(changes);
        self.sort();
    }

    fn write(&mut self, changes: &[Change]) {
        for change in changes {
            match change.after {
                Some(facts) => self.entries.set(change.user, facts),
                None => self.entries.remove(change.user),
            };
        }
    }

    fn release_leavers(&self, changes: &[Change]) {
        for change in changes.iter().filter(|change| change.after.is_none() && change.before.is_some()) {
            self.users.release(change.user);
        }
    }

    /// Makes the index from the entries.
    pub(crate) fn sort(&mut self) {
        let mut places: Vec<Place> = self.entries.iter().map(|(user, facts)| place(user, facts)).collect();
        places.sort_unstable_by_key(|place| (place.key, place.time));
        for same in places.chunk_by_mut(|a, b| (a.key, a.time) == (b.key, b.time)) {
            if same.len() > 1 {
                same.sort_by_cached_key(|place| self.users.id(place.user));
            }
        }
        let mut builder = Builder::new();
        places.into_iter().for_each(|place| builder.push(place));
        self.index = builder.finish();
    }

    fn give_back_if_empty(&mut self) {
        if self.is_empty() {
            self.entries = Entries::new();
            self.index = Index::new();
        }
    }

    fn release_users(&mut self) {
        // Nobody else could see these users any more: they go all at once with `users`.
        if Arc::strong_count(&self.users) == 1 && Arc::weak_count(&self.users) == 0 {
            self.users = Arc::new(Users::new());
            return;
        }
        self.users.release_all(self.entries.iter().map(|(user, _)| user));
    }
}

impl Drop for RankTree {
    fn drop(&mut self) {
        if Arc::strong_count(&self.users) > 1 || Arc::weak_count(&self.users) > 0 {
            self.release_users();
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Change {
    user: UserKey,
    /// Its place in the batch.
    number: u32,
    before: Option<Facts>,
    after: Option<Facts>,
}

#[inline]
pub(crate) fn find(users: &Table, entries: &Entries, user: &str) -> Option<(UserKey, Facts)> {
    let user = users.find(user)?;
    Some((user, entries.get(user)?))
}

#[inline]
pub(crate) fn place(user: UserKey, facts: Facts) -> Place {
    Place { key: facts.key, time: facts.time, user }
}
