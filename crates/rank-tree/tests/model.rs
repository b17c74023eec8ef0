//! The tree against a slow, obvious model: a `Vec` sorted anew for every question.
//!
//! Few users, few scores and few times, so that ties and overwrites are common. This file is compiled twice: as an
//! integration test on the real sizes of chunks and nodes, and into the crate's unit tests, where both are tiny and a few
//! hundred users make a tree of many levels. On failure proptest prints the shrunken steps and keeps their seed.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::cmp::Ordering;
use std::sync::Arc;

use proptest::prelude::*;
use rank_tree::{Bucket, Entry, Order, RankTree, ScoreRange, Standing, Ties, Update, Users};

const ALL_TIES: [Ties; 3] = [Ties::Shared, Ties::Dense, Ties::First];

struct Model {
    order: Order,
    rows: Vec<(String, Entry)>,
}

impl Model {
    fn new(order: Order) -> Self {
        Model { order, rows: Vec::new() }
    }

    fn better(&self, a: i64, b: i64) -> bool {
        match self.order {
            Order::High => a > b,
            Order::Low => a < b,
        }
    }

    fn compare(&self, a: &(String, Entry), b: &(String, Entry)) -> Ordering {
        let by_score = match self.order {
            Order::High => b.1.score.cmp(&a.1.score),
            Order::Low => a.1.score.cmp(&b.1.score),
        };
        by_score.then(a.1.reached_at.cmp(&b.1.reached_at)).then_with(|| a.0.cmp(&b.0))
    }

    fn set(&mut self, user: &str, entry: Option<Entry>) -> Option<Entry> {
        let found = self.rows.iter().position(|row| row.0 == user);
        let before = found.map(|at| self.rows.remove(at).1);
        if let Some(entry) = entry {
            let row = (user.to_owned(), entry);
            let at = self.rows.partition_point(|other| self.compare(other, &row).is_lt());
            self.rows.insert(at, row);
        }
        before
    }

    fn rank(&self, position: usize, ties: Ties) -> u64 {
        let score = self.rows[position].1.score;
        let ahead = self.rows.iter().map(|row| row.1.score).filter(|other| self.better(*other, score));
        1 + match ties {
            Ties::Shared => ahead.count() as u64,
            Ties::Dense => {
                let mut scores: Vec<i64> = ahead.collect();
                scores.dedup();
                scores.len() as u64
            }
            Ties::First => position as u64,
        }
    }

    /// Everything a page of the model says, in the form of [`seen`].
    fn page(&self, from: usize, to: usize, ties: Ties) -> Vec<Seen> {
        (from..to.min(self.rows.len()))
            .map(|position| {
                let (user, entry) = self.rows[position].clone();
                (user, entry, position as u64, self.rank(position, ties))
            })
            .collect()
    }
}

type Seen = (String, Entry, u64, u64);

fn seen(tree: &RankTree, page: &[Standing]) -> Vec<Seen> {
    page.iter()
        .map(|row| (tree.users().id(row.user).expect("in use"), row.entry, row.position, row.rank))
        .collect()
}

#[derive(Debug, Clone)]
enum Step {
    Set(usize, Entry),
    Remove(usize),
    Batch(Vec<(usize, Option<Entry>)>),
    /// Forty users reach the same score, one after the other.
    Crowd(usize, i64),
    /// So many users leave, one after the other, from a place in the list.
    Leave(f64, usize),
    Reload,
    Clear,
}

fn scores() -> impl Strategy<Value = i64> {
    prop_oneof![
        8 => 0..4i64,
        2 => -20..20i64,
        1 => prop_oneof![Just(i64::MIN), Just(i64::MAX), Just(i64::MIN + 1), Just(i64::MAX - 1)],
    ]
}

fn entries() -> impl Strategy<Value = Entry> {
    let times = prop_oneof![6 => 1_000..1_005u64, 1 => Just(0), 1 => Just(u64::MAX)];
    (scores(), times).prop_map(|(score, reached_at)| Entry { score, reached_at })
}

fn steps(users: usize, most: usize) -> impl Strategy<Value = Vec<Step>> {
    let change = prop_oneof![3 => entries().prop_map(Some), 1 => Just(None)];
    let step = prop_oneof![
        60 => (0..users, entries()).prop_map(|(user, entry)| Step::Set(user, entry)),
        20 => (0..users).prop_map(Step::Remove),
        8 => prop::collection::vec((0..users, change), 0..120).prop_map(Step::Batch),
        6 => (0..users, scores()).prop_map(|(user, score)| Step::Crowd(user, score)),
        6 => (0.0..1.0, 1..60usize).prop_map(|(from, count)| Step::Leave(from, count)),
        2 => Just(Step::Reload),
        1 => Just(Step::Clear),
    ];
    prop::collection::vec(step, 1..most)
}

/// Ids whose order is not the order of their numbers, in several shapes.
fn id(user: usize) -> String {
    match user % 3 {
        0 => format!("user-{user:010}"),
        1 => format!("{}é", user * 7),
        _ => format!("z{}", 100_000 - user),
    }
}

fn run(order: Order, steps: Vec<Step>) {
    let users = Arc::new(Users::new());
    let mut tree = RankTree::new(order, Arc::clone(&users));
    let mut model = Model::new(order);
    // Another board of the same game, whose users must stay whatever happens on the first.
    let mut other = RankTree::new(Order::Low, Arc::clone(&users));
    let others: Vec<String> = (0..5).map(id).collect();
    for (score, user) in others.iter().enumerate() {
        other.set(user, Entry { score: score as i64, reached_at: 0 }).unwrap();
    }
    for (number, step) in steps.into_iter().enumerate() {
        match step {
            Step::Set(user, entry) => {
                let user = id(user);
                assert_eq!(tree.set(&user, entry).unwrap(), model.set(&user, Some(entry)));
            }
            Step::Remove(user) => {
                let user = id(user);
                assert_eq!(tree.remove(&user), model.set(&user, None));
            }
            Step::Batch(changes) => {
                let ids: Vec<String> = changes.iter().map(|change| id(change.0)).collect();
                let updates: Vec<Update<'_>> =
                    ids.iter().zip(&changes).map(|(user, change)| Update { user, entry: change.1 }).collect();
                tree.apply(&updates).unwrap();
                for update in updates {
                    model.set(update.user, update.entry);
                }
            }
            Step::Crowd(first, score) => {
                for step in 0..40 {
                    let (user, entry) = (id(first + step), Entry { score, reached_at: 1_000 + step as u64 });
                    assert_eq!(tree.set(&user, entry).unwrap(), model.set(&user, Some(entry)));
                }
            }
            Step::Leave(from, count) => {
                for _ in 0..count.min(model.rows.len()) {
                    let (user, entry) = model.rows.remove((model.rows.len() as f64 * from) as usize);
                    assert_eq!(tree.remove(&user), Some(entry));
                }
            }
            Step::Reload => {
                let mut file = Vec::new();
                tree.write_checkpoint(&mut file).unwrap();
                tree = RankTree::read_checkpoint(order, Arc::clone(&users), file.as_slice()).unwrap();
            }
            Step::Clear => {
                tree.clear();
                model.rows.clear();
            }
        }
        tree.verify().unwrap_or_else(|broken| panic!("after step {number}: {broken}"));
        let only_other = others.iter().filter(|user| tree.get(user).is_none()).count();
        assert_eq!(users.len(), model.rows.len() + only_other, "each user is known while a tree holds it");
        check_one(&tree, &model, number);
    }
    check_all(&tree, &model);
    drop(tree);
    other.verify().unwrap();
    assert_eq!(users.len(), others.len(), "a dropped tree gives its users back");
    drop(other);
    assert!(users.is_empty());
}

/// A few questions, at a place that wanders with `number`.
fn check_one(tree: &RankTree, model: &Model, number: usize) {
    let length = model.rows.len();
    assert_eq!(tree.len(), length as u64);
    if length == 0 {
        assert_eq!(tree.at(0, Ties::Shared), None);
        return;
    }
    let position = number * 7 % length;
    let (user, entry) = &model.rows[position];
    assert_eq!(tree.get(user), Some(*entry));
    for ties in ALL_TIES {
        assert_eq!(tree.rank(user, ties), Some(model.rank(position, ties)), "{user} in {ties:?}");
        let page = tree.page(position as u64, 5, ties);
        assert_eq!(seen(tree, &page), model.page(position, position + 5, ties));
        let back = tree.page_back(position as u64, 5, ties);
        assert_eq!(seen(tree, &back), model.page(position.saturating_sub(5), position, ties));
        let around = tree.around(user, 2, 3, ties).unwrap();
        assert_eq!(seen(tree, &around), model.page(position.saturating_sub(2), position + 4, ties));
    }
}

fn check_all(tree: &RankTree, model: &Model) {
    let length = model.rows.len();
    for ties in ALL_TIES {
        let all: Vec<Standing> = tree.standings(0, ties).collect();
        assert_eq!(seen(tree, &all), model.page(0, length, ties));
        let mut back: Vec<Standing> = tree.standings_back(u64::MAX, ties).collect();
        back.reverse();
        assert_eq!(back, all);
        for (position, row) in all.iter().enumerate() {
            let user = tree.users().id(row.user).unwrap();
            assert_eq!(tree.standing(&user, ties), Some(*row));
            assert_eq!(tree.at(position as u64, ties), Some(*row));
        }
    }
    for (position, (user, _)) in model.rows.iter().enumerate() {
        let percent =
            (length - (model.rank(position, Ties::Shared) as usize - 1)) as f64 / length as f64 * 100.0;
        assert_eq!(tree.percentile(user), Some(percent));
    }
    assert_eq!(tree.rank("nobody", Ties::Shared), None);
    let asked: Vec<&str> =
        ["nobody"].into_iter().chain(model.rows.iter().map(|row| row.0.as_str()).rev()).collect();
    let expected: Vec<_> = asked.iter().map(|user| tree.standing(user, Ties::Dense)).collect();
    assert_eq!(tree.standings_of(&asked, Ties::Dense), expected);
    let mut ids = Vec::new();
    tree.users()
        .with_ids(tree.standings(0, Ties::First).map(|row| row.user), |_, id| ids.push(id.to_owned()));
    assert!(ids.iter().eq(model.rows.iter().map(|row| &row.0)));
    let probes = [i64::MIN, -5, 0, 1, 2, 3, 19, i64::MAX];
    for score in probes {
        let count =
            |test: &dyn Fn(i64) -> bool| model.rows.iter().filter(|row| test(row.1.score)).count() as u64;
        assert_eq!(tree.better_than(score), count(&|other| model.better(other, score)));
        assert_eq!(tree.equal_to(score), count(&|other| other == score));
        for max in probes {
            let range = ScoreRange { min: score, max };
            assert_eq!(tree.between(range), count(&|other| (score..=max).contains(&other)));
            check_range(tree, model, range);
        }
    }
    check_distribution(tree, model);
}

fn check_range(tree: &RankTree, model: &Model, range: ScoreRange) {
    let inside = |row: &&(String, Entry)| (range.min..=range.max).contains(&row.1.score);
    let expected: Vec<_> = model.rows.iter().filter(inside).cloned().collect();
    let mut read = Vec::new();
    let mut mark = None;
    loop {
        let page = tree.range(range, mark.as_ref(), 7, Ties::Shared);
        let Some(last) = page.last() else { break };
        mark = tree.mark(last);
        read.extend(seen(tree, &page).into_iter().map(|row| (row.0, row.1)));
    }
    assert_eq!(read, expected);
}

fn check_distribution(tree: &RankTree, model: &Model) {
    let mut scores: Vec<i64> = model.rows.iter().map(|row| row.1.score).collect();
    for quantile in [0.0, 0.1, 0.5, 0.99, 1.0] {
        // Walking from the worst score, the first one that the asked share of users do not beat.
        let wanted = (quantile * scores.len() as f64).ceil().max(1.0) as usize;
        let expected = scores.len().checked_sub(wanted).map(|position| scores[position]);
        assert_eq!(tree.score_at_quantile(quantile), expected);
    }
    assert_eq!(tree.score_at_quantile(1.1), None);
    assert_eq!(tree.score_at_quantile(f64::NAN), None);
    for buckets in [1, 2, 7] {
        let histogram: Vec<Bucket> = tree.histogram(buckets);
        assert_eq!(histogram.iter().map(|bucket| bucket.users).sum::<u64>(), tree.len());
        assert!(histogram.len() <= buckets);
        assert!(histogram.windows(2).all(|pair| pair[0].range.max.checked_add(1) == Some(pair[1].range.min)));
        for bucket in histogram {
            let inside = scores.iter().filter(|score| (bucket.range.min..=bucket.range.max).contains(score));
            assert_eq!(bucket.users, inside.count() as u64);
        }
    }
    scores.dedup();
    assert_eq!(tree.distinct_scores(), scores.len() as u64);
}

fn orders() -> impl Strategy<Value = Order> {
    prop_oneof![Just(Order::High), Just(Order::Low)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn few_users_agree_with_the_model(order in orders(), steps in steps(12, 120)) {
        run(order, steps);
    }

    #[test]
    fn more_users_agree_with_the_model(order in orders(), steps in steps(300, 250)) {
        run(order, steps);
    }
}

/// Reads a range page by page while users move, come and go between the pages.
#[test]
fn a_range_is_read_without_gap_or_repeat_while_entries_change() {
    let users = Arc::new(Users::new());
    let mut tree = RankTree::new(Order::High, users);
    let entry = |n: usize| Entry { score: (n % 40) as i64, reached_at: (n % 7) as u64 };
    for n in 0..2_000 {
        tree.set(&id(n), entry(n)).unwrap();
    }
    let steady: Vec<usize> = (0..2_000).filter(|n| n % 5 != 0).collect();
    let range = ScoreRange { min: 5, max: 33 };
    let mut read = Vec::new();
    let mut mark = None;
    let mut round = 0;
    loop {
        let page = tree.range(range, mark.as_ref(), 50, Ties::First);
        let Some(last) = page.last() else { break };
        mark = tree.mark(last);
        read.extend(seen(&tree, &page).into_iter().map(|row| row.0));
        // Every fifth user moves about or leaves, the last user of the page among them now and then.
        for n in (0..2_000).filter(|n| n % 5 == 0) {
            match (n / 5 + round) % 3 {
                0 => drop(tree.remove(&id(n))),
                1 => drop(tree.set(&id(n), entry(n * 31 + round)).unwrap()),
                _ => {}
            }
        }
        round += 1;
    }
    assert!(round > 10);
    for n in steady {
        let times = read.iter().filter(|user| **user == id(n)).count();
        assert_eq!(
            times,
            usize::from((5..=33).contains(&entry(n).score)),
            "user {n} was shown {times} times"
        );
    }
}

/// Takes users away one after the other from the front of a tie, its end, and the middle of the list, so that chunks and nodes empty
/// from every side.
#[test]
fn users_who_leave_in_order_leave_a_sound_tree() {
    for from in [0.0, 0.3, 0.5, 1.0] {
        for scores in [1, 3, 40] {
            let mut tree = RankTree::new(Order::High, Arc::new(Users::new()));
            let mut model = Model::new(Order::High);
            for n in 0..400 {
                let entry = Entry { score: n as i64 % scores, reached_at: n as u64 / 2 };
                tree.set(&id(n), entry).unwrap();
                model.set(&id(n), Some(entry));
            }
            while let Some(last) = model.rows.len().checked_sub(1) {
                let position = (last as f64 * from) as usize;
                let (user, entry) = model.rows.remove(position);
                assert_eq!(tree.remove(&user), Some(entry));
                tree.verify().unwrap_or_else(|broken| panic!("{last} left, from {from}: {broken}"));
                check_one(&tree, &model, position);
            }
            assert!(tree.is_empty());
        }
    }
}
