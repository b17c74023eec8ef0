//! Promises 8, 9 and 13: pages, segments, and deletion page by page.

use std::collections::BTreeSet;

use crate::contract::Subject;
use crate::contract::promises::{STRONG, get, ladder, put, put_all};
use crate::item::Item;
use crate::key::Key;
use crate::limits::{self};
use crate::operation::Operation;
use crate::query::{Consistency, Query, Scan};

/// Promise 8: whatever the page size.
pub async fn p08_pages_of_any_size_hold_everything_once(subject: &Subject) {
    put_all(subject, ladder(25)).await;
    for query in [Query::table("A"), Query::index("Recent", "A"), Query::index("ByScore", "S")] {
        let whole = subject.query_all(query.clone()).await;
        assert_eq!(whole.len(), 25);
        for limit in [1, 2, 5, 24, 25, 26] {
            assert_eq!(subject.query_all(query.clone().limit(limit)).await, whole, "pages of {limit}");
        }
    }
}

/// Promise 8: the item a page ended with may be gone when the next page is asked for.
pub async fn p08_paging_goes_on_after_a_deleted_item(subject: &Subject) {
    put_all(subject, ladder(10)).await;
    (subject.settle)();
    for query in [Query::table("A").limit(3), Query::index("ByScore", "S").limit(3).backward()] {
        let all = subject.query_all(query.clone()).await;
        let first = subject.table.query(&query).await.expect("answered");
        let last = first.items.last().expect("a page of three").key.clone();
        let next = first.next.expect("there are more than three");
        let item = get(subject, &last.pk, &last.sk).await.expect("it was just listed");
        subject.table.transact(vec![Operation::delete(last)]).await.expect("deleted");
        let rest = subject.query_all(query.clone().after(Some(next))).await;
        assert_eq!(rest, all[first.items.len()..]);
        put(subject, item).await;
    }
}

/// Promise 8: a page holds at most 1 MB, says where to go on, and a single item above that cannot exist.
pub async fn p08_a_page_ends_at_one_megabyte(subject: &Subject) {
    let items: Vec<Item> =
        (0..8).map(|n| Item::new("A", format!("{n}")).with("blob", vec![n as u8; 300 * 1_024])).collect();
    for item in &items {
        put(subject, item.clone()).await;
    }
    let page = subject.table.query(&Query::table("A")).await.expect("answered");
    let bytes: usize = page.items.iter().map(Item::size_bytes).sum();
    assert!(bytes <= limits::PAGE_BYTES_MAX, "{bytes}");
    assert!(page.next.is_some());
    assert_eq!(subject.query_all(Query::table("A")).await, items);
    let page = subject.table.scan(&Scan::all()).await.expect("answered");
    assert!(page.items.len() < items.len() && page.next.is_some());
}

/// Promise 9: whatever the number of segments and the size of pages.
pub async fn p09_segments_partition_the_table(subject: &Subject) {
    let items: Vec<Item> =
        (0..300).map(|n| Item::new(format!("USER#{n}"), format!("{}", n % 7)).with("n", n)).collect();
    put_all(subject, items.clone()).await;
    let expected: BTreeSet<Key> = items.into_iter().map(|item| item.key).collect();
    for segments in [1, 2, 3, 8, 100] {
        let found = subject.scan_all(segments, Some(17)).await;
        assert_eq!(found.len(), expected.len(), "no item is in two of {segments} segments");
        assert_eq!(found.into_iter().map(|item| item.key).collect::<BTreeSet<_>>(), expected);
    }
}

/// Promise 13: a partition of several pages, with neighbours whose keys begin alike.
pub async fn p13_a_deleted_partition_is_gone_and_nothing_else(subject: &Subject) {
    let kept = [Item::new("A", "x").with("data", "D"), Item::new("AB\0", "x"), Item::new("ABC", "x")];
    put_all(subject, kept.clone()).await;
    put_all(subject, (0..250).map(|n| Item::new("AB", format!("{n}")).with("data", "D"))).await;
    let mut calls = 0;
    while subject.table.delete_partition("AB").await.expect("deleted") {
        calls += 1;
        assert!(calls <= 10, "deletion comes to an end");
    }
    assert!(subject.query_all(Query::table("AB")).await.is_empty());
    assert_eq!(subject.query_all(Query::index("ByData", "D")).await, [kept[0].clone()]);
    assert_eq!(subject.scan_all(1, None).await.len(), kept.len());
}

/// `batch_get`: in the order asked, with gaps where there is nothing.
pub async fn batch_get_answers_in_order(subject: &Subject) {
    put_all(subject, ladder(5)).await;
    let keys = [Key::new("A", "k003"), Key::new("A", "none"), Key::new("A", "k001")];
    let found = subject.table.batch_get(&keys, STRONG).await.expect("read");
    let found: Vec<Option<&str>> =
        found.iter().map(|item| item.as_ref().map(|item| item.key.sk.as_str())).collect();
    assert_eq!(found, [Some("k003"), None, Some("k001")]);
    assert!(subject.table.batch_get(&[], Consistency::Eventual).await.expect("read").is_empty());
}
