//! The promises as functions, one or more a promise; the number in the name is the promise's.
//! They stand in four files by subject; this one gathers them and holds what they share.

use crate::contract::{Random, Subject, random};
use crate::item::Item;
use crate::key::Key;
use crate::limits;
use crate::operation::Operation;
use crate::query::Consistency;

pub use super::indexes::*;
pub use super::pages::*;
pub use super::transactions::*;
pub use super::values::*;

/// Everything at once: see [`random`].
pub async fn random_operations_match_the_reference(subject: &Subject) {
    let mut random = Random::from_environment("random_operations_match_the_reference");
    let steps =
        std::env::var("STANDINGS_TEST_STEPS").ok().and_then(|steps| steps.parse().ok()).unwrap_or(600);
    random::compare_with_reference(subject, &mut random, steps).await;
}

pub(super) const STRONG: Consistency = Consistency::Strong;

pub(super) async fn put(subject: &Subject, item: Item) {
    subject.table.transact(vec![Operation::put(item)]).await.expect("the item is put");
}

pub(super) async fn put_all(subject: &Subject, items: impl IntoIterator<Item = Item>) {
    let items: Vec<Item> = items.into_iter().collect();
    for chunk in items.chunks(limits::TRANSACTION_OPERATIONS_MAX) {
        let puts = chunk.iter().cloned().map(Operation::put).collect();
        subject.table.transact(puts).await.expect("the items are put");
    }
}

pub(super) async fn get(subject: &Subject, pk: &str, sk: &str) -> Option<Item> {
    subject.table.get(&Key::new(pk, sk), STRONG).await.expect("the item is read")
}

pub(super) fn sort_keys(items: &[Item]) -> Vec<&str> {
    items.iter().map(|item| item.key.sk.as_str()).collect()
}

/// Thirty-odd items in partition A whose sort key, `recent` and `score` rise together.
pub(super) fn ladder(count: i64) -> impl Iterator<Item = Item> {
    (0..count).map(|n| {
        Item::new("A", format!("k{n:03}"))
            .with("recent", format!("t{:03}", n / 2))
            .with("score_partition", "S")
            .with("score", n / 3)
    })
}
