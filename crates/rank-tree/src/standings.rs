//! Reading a tree: ranks, pages, neighbours, ranges.

use crate::index::{Context, Ids, Place, Probe, ProbeId, WARM_GROUP, Walk};
use crate::tree::{find, place};
use crate::{Entry, RankTree, Ties, UserKey};

/// A user with entry and rank: what a reader gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Who; [`crate::Users::with_id`] tells the id.
    pub user: UserKey,
    /// What they scored, and when.
    pub entry: Entry,
    /// How many users stand before them in the list, ties or not.
    pub position: u64,
    /// Their rank, from 1, in the style that was asked for.
    pub rank: u64,
}

/// A point in the order after which to go on reading, which stays valid whatever changes in between.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Mark {
    /// The score of the last user read.
    pub score: i64,
    /// When they reached it.
    pub reached_at: u64,
    /// Their id. They need not be in the tree any more.
    pub user: String,
}

/// Scores from `min` to `max`, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScoreRange {
    /// The lowest score.
    pub min: i64,
    /// The highest score.
    pub max: i64,
}

impl RankTree {
    /// A user's rank, from 1.
    #[inline]
    pub fn rank(&self, user: &str, ties: Ties) -> Option<u64> {
        let users = self.users.read();
        let (user, facts) = find(&users, &self.entries, user)?;
        let context = Context { entries: &self.entries, users: Ids::Held(&users) };
        Some(self.rank_of(context, place(user, facts), ties))
    }

    /// A user with entry, position and rank.
    pub fn standing(&self, user: &str, ties: Ties) -> Option<Standing> {
        let users = self.users.read();
        let (user, facts) = find(&users, &self.entries, user)?;
        let context = Context { entries: &self.entries, users: Ids::Held(&users) };
        let place = place(user, facts);
        let position = self.index.position(context, place);
        let rank = if ties == Ties::First { position + 1 } else { self.rank_of(context, place, ties) };
        Some(Standing { user, entry: self.entry(facts), position, rank })
    }

    /// Several users at once, in the order asked; faster than one by one, because their loads overlap.
    pub fn standings_of(&self, users: &[&str], ties: Ties) -> Vec<Option<Standing>> {
        let found = self.users.read().find_all(users.iter().copied());
        let context = self.context();
        let places: Vec<Option<Place>> = found
            .into_iter()
            .map(|user| user.and_then(|user| Some(place(user, self.entries.get(user)?))))
            .collect();
        let known: Vec<Place> = places.iter().flatten().copied().collect();
        let mut standings = Vec::with_capacity(known.len());
        for group in known.chunks(WARM_GROUP) {
            self.index.warm(context, group);
            standings.extend(group.iter().map(|place| {
                let position = self.index.position(context, *place);
                let rank =
                    if ties == Ties::First { position + 1 } else { self.rank_of(context, *place, ties) };
                self.standing_at(*place, position, rank)
            }));
        }
        let mut standings = standings.into_iter();
        places.into_iter().map(|place| place.and_then(|_| standings.next())).collect()
    }

    /// How many users stand before this one in the list.
    pub fn position(&self, user: &str) -> Option<u64> {
        let users = self.users.read();
        let (user, facts) = find(&users, &self.entries, user)?;
        let context = Context { entries: &self.entries, users: Ids::Held(&users) };
        Some(self.index.position(context, place(user, facts)))
    }

    /// The user at a position, from 0.
    pub fn at(&self, position: u64, ties: Ties) -> Option<Standing> {
        self.standings(position, ties).next()
    }

    /// All users from a position on, best first.
    pub fn standings(&self, position: u64, ties: Ties) -> Standings<'_> {
        Standings { tree: self, walk: Walk::new(&self.index, self.context(), position), ties, last: None }
    }

    /// All users before a position, the nearest first.
    pub fn standings_back(&self, position: u64, ties: Ties) -> StandingsBack<'_> {
        StandingsBack { tree: self, walk: Walk::new(&self.index, self.context(), position), ties, last: None }
    }

    /// Up to `limit` users from a position on.
    pub fn page(&self, position: u64, limit: usize, ties: Ties) -> Vec<Standing> {
        let users = usize::try_from(self.len().saturating_sub(position)).unwrap_or(usize::MAX);
        let mut page = Vec::with_capacity(limit.min(users));
        page.extend(self.standings(position, ties).take(limit));
        page
    }

    /// Up to `limit` users before a position, best first.
    pub fn page_back(&self, position: u64, limit: usize, ties: Ties) -> Vec<Standing> {
        let position = position.min(self.len());
        let start = position.saturating_sub(limit as u64);
        self.page(start, (position - start) as usize, ties)
    }

    /// A user with up to `above` users before them and up to `below` after them, best first.
    pub fn around(&self, user: &str, above: usize, below: usize, ties: Ties) -> Option<Vec<Standing>> {
        let position = self.position(user)?;
        let start = position.saturating_sub(above as u64);
        let limit = ((position - start) as usize + 1).saturating_add(below);
        Some(self.page(start, limit, ties))
    }

    /// Up to `limit` users with a score in a range, best first, going on after a mark.
    ///
    /// The mark of the last user of a page ([`RankTree::mark`]) makes the next page begin right after the place where that
    /// user stood, whether or not they are still there: no user who kept their entry is shown twice or left out.
    pub fn range(&self, range: ScoreRange, after: Option<&Mark>, limit: usize, ties: Ties) -> Vec<Standing> {
        let (from, to) = self.positions(range);
        let from = after.map_or(from, |mark| from.max(self.position_after(mark)));
        self.page(from, limit.min(to.saturating_sub(from) as usize), ties)
    }

    /// The mark of a user's place.
    pub fn mark(&self, standing: &Standing) -> Option<Mark> {
        let Entry { score, reached_at } = standing.entry;
        Some(Mark { score, reached_at, user: self.users.id(standing.user)? })
    }

    /// The position where reading goes on after a mark.
    pub fn position_after(&self, mark: &Mark) -> u64 {
        let probe =
            Probe { key: self.order.key(mark.score), time: mark.reached_at, id: ProbeId::Id(&mark.user) };
        self.index.position_after(self.context(), &probe)
    }

    /// The first and the behind-last position of the users in a score range.
    pub(crate) fn positions(&self, range: ScoreRange) -> (u64, u64) {
        if range.min > range.max {
            return (0, 0);
        }
        let (a, b) = (self.order.key(range.min), self.order.key(range.max));
        let from = self.index.better::<false>(self.context(), a.min(b), None).users;
        (from, self.not_worse(a.max(b)))
    }

    /// Users with this order key or a better one.
    pub(crate) fn not_worse(&self, key: i64) -> u64 {
        key.checked_add(1)
            .map_or(self.len(), |worse| self.index.better::<false>(self.context(), worse, None).users)
    }

    #[inline]
    fn rank_of(&self, context: Context<'_>, place: Place, ties: Ties) -> u64 {
        1 + match ties {
            Ties::Shared => self.index.better::<false>(context, place.key, Some(place.user)).users,
            Ties::Dense => self.index.better::<true>(context, place.key, Some(place.user)).scores,
            Ties::First => self.index.position(context, place),
        }
    }

    fn standing_at(&self, place: Place, position: u64, rank: u64) -> Standing {
        let entry = Entry { score: self.order.score(place.key), reached_at: place.time };
        Standing { user: place.user, entry, position, rank }
    }
}

/// Users from a position on; see [`RankTree::standings`].
#[derive(Debug, Clone)]
pub struct Standings<'a> {
    tree: &'a RankTree,
    walk: Walk<'a>,
    ties: Ties,
    /// The order key and the rank of the user before.
    last: Option<(i64, u64)>,
}

impl Iterator for Standings<'_> {
    type Item = Standing;

    fn next(&mut self) -> Option<Standing> {
        let position = self.walk.position();
        let place = self.walk.forward()?;
        let rank = match (self.ties, self.last) {
            (Ties::First, _) => position + 1,
            (_, Some((key, rank))) if key == place.key => rank,
            (Ties::Shared, Some(_)) => position + 1,
            (Ties::Dense, Some((_, rank))) => rank + 1,
            (ties, None) => self.tree.rank_of(self.tree.context(), place, ties),
        };
        self.last = Some((place.key, rank));
        Some(self.tree.standing_at(place, position, rank))
    }
}

/// Users before a position, backwards; see [`RankTree::standings_back`].
#[derive(Debug, Clone)]
pub struct StandingsBack<'a> {
    tree: &'a RankTree,
    walk: Walk<'a>,
    ties: Ties,
    last: Option<(i64, u64)>,
}

impl Iterator for StandingsBack<'_> {
    type Item = Standing;

    fn next(&mut self) -> Option<Standing> {
        let place = self.walk.backward()?;
        let position = self.walk.position();
        let rank = match (self.ties, self.last) {
            (Ties::First, _) => position + 1,
            (_, Some((key, rank))) if key == place.key => rank,
            (Ties::Dense, Some((_, rank))) => rank - 1,
            // Going back, a tie is met at its end: where it begins must be asked.
            (ties, _) => self.tree.rank_of(self.tree.context(), place, ties),
        };
        self.last = Some((place.key, rank));
        Some(self.tree.standing_at(place, position, rank))
    }
}
