//! Large trees, and the distributions that break naive ones: correct, and as small and low as promised.
//!
//! Times are not asserted (machines are noisy); what is asserted is the structure that the times follow from.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::sync::Arc;

use rank_tree::{Entry, Order, RankTree, Ties, Update, Users};

/// Printed by a failing test through the panic message of [`check`]; the numbers are the same in each run.
const SEED: u64 = 0x5EED_0001;

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed ^ (mixed >> 29)
}

fn id(n: u64) -> String {
    format!("user-{n:019}")
}

fn users_of_test() -> u64 {
    if std::env::var_os("STANDINGS_TEST_QUICK").is_some() { 20_000 } else { 200_000 }
}

/// Invariants, the round trip `rank_of(at(i)) == i`, and a bound on memory.
fn check(tree: &RankTree, what: &str) {
    tree.verify().unwrap_or_else(|broken| panic!("{what} (seed {SEED:#x}): {broken}"));
    let users = tree.len();
    let mut state = SEED;
    for step in 0..2_000.min(users) {
        let position = if step < 3 { step.min(users - 1) } else { random(&mut state) % users };
        let standing = tree.at(position, Ties::First).unwrap();
        assert_eq!(standing.position, position, "{what} (seed {SEED:#x})");
        let user = tree.users().id(standing.user).unwrap();
        assert_eq!(tree.rank(&user, Ties::First), Some(position + 1), "{what} (seed {SEED:#x})");
        assert_eq!(tree.position(&user), Some(position), "{what} (seed {SEED:#x})");
        let shared = tree.rank(&user, Ties::Shared).unwrap();
        assert_eq!(shared, tree.better_than(standing.entry.score) + 1, "{what} (seed {SEED:#x})");
        let begins = tree.at(shared - 1, Ties::Dense).unwrap();
        assert_eq!(begins.entry.score, standing.entry.score, "{what} (seed {SEED:#x})");
        assert_eq!(Some(begins.rank), tree.rank(&user, Ties::Dense), "{what} (seed {SEED:#x})");
    }
    let memory = tree.memory();
    let index = memory.index as f64 / users as f64;
    assert!(index < 20.0, "{what}: the index takes {index:.1} bytes a user");
    let entries = memory.entries as f64 / users as f64;
    // A small tree's entries are a hash map, which may just have grown.
    let most = if users > 20_000 { 36.0 } else { 64.0 };
    assert!(entries < most, "{what}: entries take {entries:.1} bytes a user");
}

fn filled(order: Order, score: impl Fn(u64) -> i64, time: impl Fn(u64) -> u64) -> RankTree {
    let mut tree = RankTree::new(order, Arc::new(Users::new()));
    for n in 0..users_of_test() {
        tree.set(&id(n), Entry { score: score(n), reached_at: time(n) }).unwrap();
    }
    tree
}

#[test]
fn all_scores_equal() {
    check(&filled(Order::High, |_| 7, |n| n), "all scores equal");
}

#[test]
fn all_scores_and_times_equal() {
    // Every comparison comes down to the ids.
    let mut state = SEED;
    let mut tree = RankTree::new(Order::High, Arc::new(Users::new()));
    for _ in 0..users_of_test() / 4 {
        tree.set(&id(random(&mut state) % 1_000_000), Entry { score: 7, reached_at: 7 }).unwrap();
    }
    check(&tree, "all scores and times equal");
    let first: Vec<String> =
        tree.page(0, 50, Ties::First).iter().map(|row| tree.users().id(row.user).unwrap()).collect();
    assert!(first.is_sorted());
}

#[test]
fn all_scores_equal_and_times_falling() {
    check(&filled(Order::High, |_| 7, |n| u64::MAX - n), "all scores equal, times falling");
}

#[test]
fn all_scores_distinct() {
    let spread = |n: u64| (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 1) as i64;
    check(&filled(Order::High, spread, |n| n), "distinct scores");
    check(&filled(Order::Low, spread, |n| n), "distinct scores, low wins");
}

#[test]
fn ever_growing_and_ever_falling() {
    check(&filled(Order::High, |n| n as i64, |n| n), "ever-growing");
    check(&filled(Order::Low, |n| n as i64, |n| n), "ever-growing, low wins");
    check(&filled(Order::High, |n| -(n as i64), |n| n), "ever-falling");
}

#[test]
fn extreme_scores() {
    let extremes = [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX - 1, i64::MAX];
    let tree = filled(Order::High, |n| extremes[n as usize % 7], |n| [0, 1, u64::MAX][n as usize % 3]);
    check(&tree, "extreme scores");
    assert_eq!(tree.distinct_scores(), 7);
    assert_eq!(tree.histogram(3).iter().map(|bucket| bucket.users).sum::<u64>(), tree.len());
}

#[test]
fn all_updates_at_the_top() {
    let mut tree = filled(Order::High, |n| (n % 100) as i64, |n| n);
    let mut state = SEED;
    for step in 0..users_of_test() {
        let user = id(random(&mut state) % users_of_test());
        tree.set(&user, Entry { score: 1_000 + step as i64, reached_at: step }).unwrap();
        assert_eq!(tree.rank(&user, Ties::First), Some(1));
    }
    check(&tree, "all updates at the top");
}

/// Scores that keep arriving right behind a tie that takes no other score into its chunks.
#[test]
fn ever_growing_below_a_tie() {
    for tie in [255, 256, 257, 1_000] {
        let score = |n: u64| if n < tie { i64::MAX } else { n as i64 };
        check(&filled(Order::High, score, |n| n), "ever-growing below a tie");
    }
}

/// A new best score when all that is left before the next node is one chunk of a tie.
#[test]
fn a_new_best_score_above_a_tie_that_thinned_out() {
    let mut tree = RankTree::new(Order::High, Arc::new(Users::new()));
    for n in 0..54 * 255 {
        tree.set(&id(n), Entry { score: 100, reached_at: n }).unwrap();
    }
    for n in 255..24 * 255 {
        tree.remove(&id(n));
    }
    tree.set("best", Entry { score: 200, reached_at: 0 }).unwrap();
    check(&tree, "a new best score");
    assert_eq!(tree.rank(&id(0), Ties::Shared), Some(2));
    assert_eq!(tree.better_than(100), 1);
}

#[test]
fn a_second_board_of_the_same_users_adds_nothing_to_their_table() {
    let users = Arc::new(Users::new());
    let tree = || {
        let rows = (0..50_000).map(|n| (id(n), Entry { score: n as i64, reached_at: n }));
        RankTree::from_unsorted(Order::High, Arc::clone(&users), rows).unwrap()
    };
    let first = tree();
    let before = first.memory();
    let second = tree();
    assert_eq!((first.memory().ids, first.memory().id_table), (before.ids, before.id_table));
    assert_eq!(second.len(), 50_000);
}

#[test]
fn limits_of_what_is_asked_are_no_limits_of_what_is_safe() {
    let tree = filled(Order::High, |n| n as i64, |n| n);
    assert_eq!(tree.around(&id(5), 2, usize::MAX, Ties::First).unwrap().len(), 8);
    assert_eq!(tree.around(&id(5), usize::MAX, 0, Ties::First).unwrap().len() as u64, tree.len() - 5);
    assert_eq!(tree.page_back(u64::MAX, usize::MAX, Ties::Shared).len() as u64, tree.len());
    assert!(tree.histogram(usize::MAX).len() <= rank_tree::BUCKETS_MAX);
}

#[test]
fn one_user_updated_a_million_times() {
    let mut tree = filled(Order::High, |n| (n % 1_000) as i64, |n| n);
    let before = tree.memory();
    let mut state = SEED;
    for step in 0..1_000_000 {
        let score = (random(&mut state) % 1_000) as i64;
        tree.set("user-0000000000000000007", Entry { score, reached_at: step }).unwrap();
    }
    check(&tree, "one user updated a million times");
    assert_eq!(tree.len(), users_of_test());
    assert!(tree.memory().index <= before.index * 11 / 10, "it does not grow");
}

#[test]
fn points_added_at_random_keep_the_index_small() {
    let mut tree = filled(Order::High, |n| (n % 30) as i64, |n| n);
    let mut state = SEED;
    for step in 0..4 * users_of_test() {
        let user = id(random(&mut state) % users_of_test());
        let add = |before: Option<Entry>| {
            before.map(|entry| Entry { score: entry.score + 1, reached_at: 1_000_000_000 + step })
        };
        tree.update(&user, add).unwrap();
    }
    check(&tree, "points added at random");
}

#[test]
fn everybody_leaves() {
    let mut tree = filled(Order::High, |n| (n % 1_000) as i64, |n| n);
    let mut state = SEED;
    let mut order: Vec<u64> = (0..users_of_test()).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, (random(&mut state) % (at as u64 + 1)) as usize);
    }
    let half = order.len() / 2;
    for n in &order[..half] {
        assert!(tree.remove(&id(*n)).is_some());
    }
    check(&tree, "half have left");
    for n in &order[half..] {
        assert!(tree.remove(&id(*n)).is_some());
    }
    assert!(tree.is_empty() && tree.users().is_empty());
    let empty = RankTree::new(Order::High, Arc::new(Users::new()));
    assert_eq!(tree.memory(), empty.memory(), "all memory is given back");
}

#[test]
fn batches_of_every_size_do_what_single_changes_do() {
    let users = users_of_test() / 4;
    let base = || {
        let rows = (0..users).map(|n| (id(n), Entry { score: (n % 70) as i64, reached_at: n }));
        RankTree::from_unsorted(Order::High, Arc::new(Users::new()), rows).unwrap()
    };
    for size in [1, 10, 1_000, users] {
        let (mut one_by_one, mut batched) = (base(), base());
        let mut state = SEED + size;
        let changes: Vec<(String, Option<Entry>)> = (0..size)
            .map(|step| {
                let drawn = random(&mut state);
                let entry = Entry { score: (drawn % 90) as i64, reached_at: users + step };
                (id(drawn % (users * 5 / 4)), (drawn >> 40 & 7 != 0).then_some(entry))
            })
            .collect();
        for (user, entry) in &changes {
            one_by_one.update(user, |_| *entry).unwrap();
        }
        let updates: Vec<Update<'_>> =
            changes.iter().map(|(user, entry)| Update { user, entry: *entry }).collect();
        batched.apply(&updates).unwrap();
        batched.verify().unwrap();
        let read = |tree: &RankTree| -> Vec<(Option<String>, Entry)> {
            tree.standings(0, Ties::First).map(|row| (tree.users().id(row.user), row.entry)).collect()
        };
        assert_eq!(read(&batched), read(&one_by_one), "a batch of {size} (seed {SEED:#x})");
        assert_eq!(batched.users().len() as u64, batched.len());
    }
}

#[test]
fn a_batch_with_a_bad_id_changes_nothing() {
    let users = Arc::new(Users::new());
    let mut tree = RankTree::new(Order::High, Arc::clone(&users));
    tree.set("ann", Entry { score: 1, reached_at: 1 }).unwrap();
    let entry = Some(Entry { score: 9, reached_at: 9 });
    let updates =
        [Update { user: "bob", entry }, Update { user: "ann", entry: None }, Update { user: "", entry }];
    assert!(tree.apply(&updates).is_err());
    assert_eq!((tree.len(), users.len()), (1, 1));
    assert_eq!(tree.get("ann"), Some(Entry { score: 1, reached_at: 1 }));
    assert_eq!(
        tree.set("", Entry { score: 1, reached_at: 1 }).unwrap_err().to_string(),
        "a user id has 1 to 254 bytes, this one has 0"
    );
}

#[test]
fn a_user_on_ten_boards_pays_for_the_id_once() {
    let users = Arc::new(Users::new());
    let long = |n: u64| format!("a rather long name with spaces, number {n}");
    let tree = |board: u64| {
        let rows = (0..20_000).map(|n| (long(n), Entry { score: (n * board % 100) as i64, reached_at: n }));
        RankTree::from_unsorted(Order::High, Arc::clone(&users), rows).unwrap()
    };
    let first = tree(1);
    let ids = first.memory().ids;
    let others: Vec<RankTree> = (2..=10).map(tree).collect();
    assert_eq!(users.len(), 20_000);
    assert!(first.memory().ids <= ids + ids / 100, "nine more boards add no ids");
    drop(first);
    assert_eq!(users.len(), 20_000, "nine boards still hold them");
    others[0].verify().unwrap();
    drop(others);
    assert!(users.is_empty());
}

#[test]
fn a_small_board_of_a_large_game_is_small() {
    let users = Arc::new(Users::new());
    let everybody = (0..users_of_test()).map(|n| (id(n), Entry { score: n as i64, reached_at: n }));
    let large = RankTree::from_unsorted(Order::High, Arc::clone(&users), everybody).unwrap();
    let mut small = RankTree::new(Order::High, Arc::clone(&users));
    for n in (0..users_of_test()).step_by(100) {
        small.set(&id(n), Entry { score: n as i64, reached_at: n }).unwrap();
    }
    small.verify().unwrap();
    let each = small.memory().entries as f64 / small.len() as f64;
    assert!(each < 64.0, "entries of the small board take {each:.0} bytes a user");
    assert_eq!(large.len(), users_of_test());
}
