//! A ranking as it was at one moment, read page by page while plays go on.
//!
//! Nothing is copied. Whoever changes an entry first leaves here what it was ([`View::before_change`]); a page is then the rows of the tree that have not
//! changed since, with those that have changed put back where they were. A user who has not changed stays at one place in the order, so each user is met
//! exactly once: as a row, or as what was left here.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rank_tree::{Entry, Mark, Order, RankTree};
use standings_table::Text;

use super::Placed;
use crate::board::Ties;

/// A user with entry, rank and place in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The user.
    pub placed: Placed,
    /// Their place, from 1, counting everyone.
    pub place: u64,
    /// How many users have a better score.
    pub better: u64,
}

/// Where a user stands, or stood.
#[derive(Clone, Debug)]
struct At {
    order: Order,
    entry: Entry,
    user: Text,
}

impl Ord for At {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order.compare((self.entry, self.user.as_str()), (other.entry, other.user.as_str()))
    }
}

impl PartialOrd for At {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for At {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for At {}

/// The views of one season that are being read.
#[derive(Default)]
pub(super) struct Views(Vec<Weak<Mutex<View>>>);

impl Views {
    /// To be called before a user's entry changes, under the tree's lock.
    pub(super) fn before_change(&mut self, tree: &RankTree, user: &str) {
        self.0.retain(|view| match view.upgrade() {
            Some(view) => {
                view.lock().unwrap_or_else(PoisonError::into_inner).before_change(tree, user);
                true
            }
            None => false,
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn add(&mut self, view: &Arc<Mutex<View>>) {
        self.0.push(Arc::downgrade(view));
    }
}

/// One view.
pub(super) struct View {
    order: Order,
    ties: Ties,
    /// Everything up to here has been given; nothing yet if there is none.
    given: Option<At>,
    finished: bool,
    /// Users whose entry is not what it was.
    changed: HashSet<Text, foldhash::fast::RandomState>,
    /// What their entries were, of those who have not been given yet.
    ahead: BTreeSet<At>,
    /// How many users have been given.
    place: u64,
    /// Of the score given last: the place of its first user, and how many different scores there were with it.
    score: Option<i64>,
    first_of_score: u64,
    scores: u64,
}

impl View {
    /// A view of this moment, from a place on (0 is the beginning). One that does not begin at the beginning is right only if nothing changes meanwhile.
    pub(super) fn new(tree: &RankTree, ties: Ties, from: u64) -> Self {
        let last = from.checked_sub(1).and_then(|last| tree.page(last, 1, rank_tree::Ties::Shared).pop());
        let dense = from.checked_sub(1).and_then(|last| tree.page(last, 1, rank_tree::Ties::Dense).pop());
        let given = last.as_ref().and_then(|row| tree.mark(row)).map(|mark| At {
            order: tree.order(),
            entry: Entry { score: mark.score, reached_at: mark.reached_at },
            user: mark.user.into(),
        });
        Self {
            order: tree.order(),
            ties,
            finished: false,
            given,
            changed: HashSet::default(),
            ahead: BTreeSet::new(),
            place: from.min(tree.len()),
            score: last.as_ref().map(|row| row.entry.score),
            first_of_score: last.map_or(0, |row| row.rank),
            scores: dense.map_or(0, |row| row.rank),
        }
    }

    fn before_change(&mut self, tree: &RankTree, user: &str) {
        if self.finished || !self.changed.insert(user.into()) {
            return;
        }
        let Some(entry) = tree.get(user) else { return };
        let at = At { order: self.order, entry, user: user.into() };
        if self.given.as_ref().is_none_or(|given| *given < at) {
            self.ahead.insert(at);
        }
    }

    /// The next users in order; none at the end. Under the tree's lock.
    pub(super) fn next(&mut self, tree: &RankTree, limit: usize) -> Vec<Listed> {
        let mut found = Vec::new();
        while found.is_empty() && !self.finished {
            let start = self.given.as_ref().map_or(0, |given| {
                let Entry { score, reached_at } = given.entry;
                tree.position_after(&Mark { score, reached_at, user: given.user.to_string() })
            });
            let rows = tree.page(start, limit, rank_tree::Ties::First);
            let mut page: Vec<At> = rows
                .iter()
                .map(|row| At { order: self.order, entry: row.entry, user: Text::default() })
                .collect();
            tree.users().with_ids(rows.iter().map(|row| row.user), |at, id| page[at].user = Text::from(id));
            let last = page.last().cloned();
            self.finished = start + rows.len() as u64 >= tree.len();
            page.retain(|at| !self.changed.contains(&at.user));
            // Those who have changed are put back up to the last row; behind the last row of all there is nobody else.
            let later = match &last {
                Some(last) if !self.finished => self.ahead.split_off(last),
                _ => BTreeSet::new(),
            };
            let back = std::mem::replace(&mut self.ahead, later);
            if !back.is_empty() {
                page.extend(back);
                page.sort();
            }
            self.given = last.or_else(|| self.given.take());
            found = page;
        }
        found.into_iter().map(|at| self.list(at)).collect()
    }

    fn list(&mut self, at: At) -> Listed {
        self.place += 1;
        if self.score != Some(at.entry.score) {
            self.score = Some(at.entry.score);
            self.first_of_score = self.place;
            self.scores += 1;
        }
        let rank = match self.ties {
            Ties::Shared => self.first_of_score,
            Ties::Dense => self.scores,
            Ties::First => self.place,
        };
        let Entry { score, reached_at } = at.entry;
        Listed {
            placed: Placed { user: at.user, score, reached_at, rank },
            place: self.place,
            better: self.first_of_score - 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use rank_tree::Users;

    use super::*;

    /// A tree that changes all the time while a view of it is read, a few users at a time: the view shows the moment it was made at.
    #[test]
    fn a_view_shows_one_moment_whatever_changes_meanwhile() {
        for seed in 0..300 {
            let mut random = Random(seed);
            let order = if random.below(2) == 0 { Order::High } else { Order::Low };
            let ties = [Ties::Shared, Ties::Dense, Ties::First][random.below(3) as usize];
            let mut tree = RankTree::new(order, Arc::new(Users::new()));
            let users = 1 + random.below(60);
            let change = |tree: &mut RankTree, random: &mut Random| {
                let user = format!("u{}", random.below(users));
                if random.below(8) == 0 {
                    tree.remove(&user);
                } else {
                    let entry = Entry { score: random.below(9) as i64, reached_at: random.below(4) };
                    tree.set(&user, entry).unwrap();
                }
            };
            for _ in 0..random.below(100) {
                change(&mut tree, &mut random);
            }
            let expected: Vec<(String, Entry, u64)> = tree
                .page(0, 1_000, ties.into())
                .iter()
                .map(|row| (tree.users().id(row.user).unwrap(), row.entry, row.rank))
                .collect();
            let mut views = Views::default();
            let view = Arc::new(Mutex::new(View::new(&tree, ties, 0)));
            views.add(&view);
            let mut found = Vec::new();
            loop {
                for _ in 0..random.below(6) {
                    let before = random;
                    // The same change twice: once to hear who it is about, once to make it.
                    let user = format!("u{}", random.below(users));
                    views.before_change(&tree, &user);
                    random = before;
                    change(&mut tree, &mut random);
                }
                let rows = view.lock().unwrap().next(&tree, 1 + random.below(7) as usize);
                if rows.is_empty() {
                    break;
                }
                found.extend(rows);
            }
            let places: Vec<u64> = found.iter().map(|row| row.place).collect();
            assert_eq!(places, (1..=expected.len() as u64).collect::<Vec<_>>(), "seed {seed}");
            let score_of = |row: &Listed| row.placed.score;
            for row in &found {
                let better = found.iter().filter(|other| order.is_better(score_of(other), score_of(row)));
                assert_eq!(better.count() as u64, row.better, "seed {seed}");
            }
            let found: Vec<(String, Entry, u64)> = found
                .into_iter()
                .map(|Listed { placed: Placed { user, score, reached_at, rank }, .. }| {
                    (user.to_string(), Entry { score, reached_at }, rank)
                })
                .collect();
            assert_eq!(found, expected, "seed {seed}");
        }
    }

    #[test]
    fn a_view_goes_on_from_any_place_if_nothing_changes() {
        let mut tree = RankTree::new(Order::High, Arc::new(Users::new()));
        for at in 0..50 {
            tree.set(&format!("u{at}"), Entry { score: at % 7, reached_at: 5 }).unwrap();
        }
        for ties in [Ties::Shared, Ties::Dense, Ties::First] {
            let whole = View::new(&tree, ties, 0).next(&tree, 100);
            for from in 0..=50 {
                let mut rest = Vec::new();
                let mut view = View::new(&tree, ties, from);
                loop {
                    let rows = view.next(&tree, 3);
                    if rows.is_empty() {
                        break;
                    }
                    rest.extend(rows);
                }
                assert_eq!(rest, whole[from as usize..]);
            }
        }
    }

    #[derive(Clone, Copy)]
    struct Random(u64);

    impl Random {
        fn below(&mut self, end: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % end
        }
    }
}
