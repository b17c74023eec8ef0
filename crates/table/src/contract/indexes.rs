//! Promises 5, 6 and 7: what is in an index, and in which order.

use std::slice::from_ref;

use crate::contract::Subject;
use crate::contract::promises::{ladder, put, put_all, sort_keys};
use crate::error::Error;
use crate::item::Item;
use crate::key::{Key, SortValue};
use crate::operation::Operation;
use crate::query::{Query, SortRange};

/// Promise 5: what cannot be promised cannot be asked.
pub async fn p05_strong_read_of_a_global_index_is_refused(subject: &Subject) {
    let error = subject.table.query(&Query::index("ByData", "x").strong()).await.expect_err("refused");
    assert!(matches!(&error, Error::StrongReadOfGlobalIndex { name } if name == "ByData"), "{error}");
    subject
        .table
        .query(&Query::index("Recent", "x").strong())
        .await
        .expect("a local index can be read strongly");
}

/// Promise 6: only items that carry both attributes of an index are in it.
pub async fn p06_indexes_are_sparse(subject: &Subject) {
    put_all(
        subject,
        [
            Item::new("A", "both").with("score_partition", "S").with("score", 5),
            Item::new("A", "partition only").with("score_partition", "S"),
            Item::new("A", "sort only").with("score", 5),
            Item::new("A", "neither"),
        ],
    )
    .await;
    assert_eq!(sort_keys(&subject.query_all(Query::index("ByScore", "S")).await), ["both"]);
    assert!(subject.query_all(Query::index("Recent", "A")).await.is_empty());
}

/// Promise 6: a changed attribute moves the row, a dropped one removes it, a deleted item takes its rows along.
pub async fn p06_a_changed_item_moves_in_its_indexes(subject: &Subject) {
    let places = async || {
        let mut places = Vec::new();
        for partition in ["S", "T"] {
            for item in subject.query_all(Query::index("ByScore", partition)).await {
                places.push((partition, item.number("score").expect("the row has its sort attribute")));
            }
        }
        places
    };
    let scored = |partition: &str, score: i64| {
        Item::new("A", "1").with("score_partition", partition).with("score", score)
    };
    put(subject, scored("S", 1)).await;
    assert_eq!(places().await, [("S", 1)]);
    put(subject, scored("S", 2)).await;
    assert_eq!(places().await, [("S", 2)]);
    put(subject, scored("T", 2)).await;
    assert_eq!(places().await, [("T", 2)]);
    put(subject, Item::new("A", "1").with("score_partition", "T")).await;
    assert_eq!(places().await, []);
    put(subject, scored("S", 9)).await;
    subject.table.transact(vec![Operation::delete(Key::new("A", "1"))]).await.expect("deleted");
    assert_eq!(places().await, []);
}

/// Promise 6: a row carries its keys, the item's keys and the projection, no more and no less.
pub async fn p06_rows_show_the_projection(subject: &Subject) {
    let item = Item::new("A", "1")
        .with("score_partition", "S")
        .with("score", 5)
        .with("name", "Ann")
        .with("inverted", "1")
        .with("data", "D")
        .with("best", "b")
        .with("other", "x");
    put(subject, item.clone()).await;
    let included = Item::new("A", "1").with("score_partition", "S").with("score", 5).with("name", "Ann");
    assert_eq!(subject.query_all(Query::index("ByScore", "S")).await, [included]);
    assert_eq!(
        subject.query_all(Query::index("Inverted", "1")).await,
        [Item::new("A", "1").with("inverted", "1")]
    );
    assert_eq!(subject.query_all(Query::index("Best", "A")).await, [Item::new("A", "1").with("best", "b")]);
    assert_eq!(subject.query_all(Query::index("ByData", "D")).await, from_ref(&item));
    // A change that only touches what an index carries shows there.
    put(subject, item.with("name", "Bea")).await;
    let page = subject.query_all(Query::index("ByScore", "S")).await;
    assert_eq!(page[0].text("name"), Some("Bea"));
}

/// Promise 7: byte by byte, whatever the bytes.
pub async fn p07_strings_order_bytewise(subject: &Subject) {
    let mut texts = vec![
        "\0", "\0\0", "\0\u{1}", "a", "a\0", "a\0b", "a\u{1}", "a#", "a#b", "aa", "b", "B", "é", "z",
        "\u{7f}", "😀", "\u{ffff}",
    ];
    put_all(subject, texts.iter().map(|text| Item::new("A", *text).with("recent", *text))).await;
    // The same sort value in a neighbouring partition must not leak in.
    put_all(subject, [Item::new("A\0", "a").with("recent", "a"), Item::new("B", "a").with("recent", "a")])
        .await;
    texts.sort_unstable_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
    assert_eq!(sort_keys(&subject.query_all(Query::table("A")).await), texts);
    assert_eq!(sort_keys(&subject.query_all(Query::index("Recent", "A")).await), texts);
}

/// Promise 7: over the whole range of `i64`.
pub async fn p07_numbers_order_numerically(subject: &Subject) {
    let numbers = [
        i64::MIN,
        i64::MIN + 1,
        -1_000_000,
        -256,
        -255,
        -1,
        0,
        1,
        9,
        10,
        255,
        256,
        1 << 53,
        (1 << 53) + 1,
        i64::MAX - 1,
        i64::MAX,
    ];
    let items = numbers.iter().rev().enumerate().map(|(at, number)| {
        Item::new("A", format!("{at:02}")).with("score_partition", "S").with("score", *number)
    });
    put_all(subject, items).await;
    let found: Vec<i64> = subject
        .query_all(Query::index("ByScore", "S"))
        .await
        .iter()
        .filter_map(|item| item.number("score"))
        .collect();
    assert_eq!(found, numbers);
}

/// Promise 7: equal sort values are ordered by partition key, then sort key, of the item.
pub async fn p07_ties_order_by_key(subject: &Subject) {
    let keys = [("A", "1"), ("A", "2"), ("A\0", "0"), ("AB", "0"), ("B", "0")];
    let items =
        keys.iter().rev().map(|(pk, sk)| Item::new(*pk, *sk).with("score_partition", "S").with("score", 7));
    put_all(subject, items).await;
    let found = subject.query_all(Query::index("ByScore", "S")).await;
    let found: Vec<(&str, &str)> =
        found.iter().map(|item| (item.key.pk.as_str(), item.key.sk.as_str())).collect();
    assert_eq!(found, keys);
}

/// Promise 7: on the table and on indexes.
pub async fn p07_backward_is_forward_reversed(subject: &Subject) {
    put_all(subject, ladder(30)).await;
    for query in [Query::table("A"), Query::index("Recent", "A"), Query::index("ByScore", "S")] {
        let mut forward = subject.query_all(query.clone()).await;
        let backward = subject.query_all(query.backward().limit(7)).await;
        forward.reverse();
        assert_eq!(backward, forward);
        assert_eq!(forward.len(), 30);
    }
}

/// Promise 7: every kind of range, on strings, on numbers, on the table itself.
pub async fn p07_every_sort_range_selects_its_rows(subject: &Subject) {
    put_all(subject, ladder(40)).await;
    let text = |text: &str| SortValue::from(text);
    let string_ranges = |prefix: &str| {
        let at = |n: &str| text(&format!("{prefix}{n}"));
        vec![
            SortRange::Equals(at("007")),
            SortRange::BeginsWith(format!("{prefix}01").into()),
            SortRange::BeginsWith("".into()),
            SortRange::Between(at("003"), at("011")),
            SortRange::Between(at("011"), at("003")),
            SortRange::Less(at("005")),
            SortRange::Greater(at("012")),
            SortRange::Equals(text("nothing")),
        ]
    };
    let number_ranges = vec![
        SortRange::Equals(7.into()),
        SortRange::Between((-1).into(), 3.into()),
        SortRange::Less(4.into()),
        SortRange::Greater(4.into()),
        SortRange::Less(i64::MIN.into()),
        SortRange::Greater(i64::MAX.into()),
    ];
    let cases = [
        (Query::table("A"), string_ranges("k")),
        (Query::index("Recent", "A"), string_ranges("t")),
        (Query::index("ByScore", "S"), number_ranges),
    ];
    for (query, ranges) in cases {
        let all = subject.query_all(query.clone()).await;
        for range in ranges {
            let sort_of = |item: &Item| match query.index.as_deref() {
                None => SortValue::String(item.key.sk.clone()),
                Some("Recent") => item.index_sort("recent").expect("carried"),
                Some(_) => item.index_sort("score").expect("carried"),
            };
            let expected: Vec<Item> =
                all.iter().filter(|item| range.contains(&sort_of(item))).cloned().collect();
            let found = subject.query_all(query.clone().sort(range.clone()).limit(3)).await;
            assert_eq!(found, expected, "{query:?} {range:?}");
        }
    }
}
