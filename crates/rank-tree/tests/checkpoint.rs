//! A checkpoint comes back as it was written, or is refused with a reason.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::io::{Cursor, Read};
use std::sync::Arc;

use rank_tree::{CheckpointError, CheckpointWriter, Entry, Order, RankTree, Ties, Users};

fn tree(order: Order, users: u64) -> RankTree {
    let rows = (0..users).map(|n| {
        let id = match n % 3 {
            0 => format!("user-{n:012}"),
            1 => format!("이름{n}"),
            _ => format!("{:08x}-0000-4000-8000-{n:012x}", n * 77),
        };
        let score = match n % 50 {
            0 => i64::MIN,
            1 => i64::MAX,
            _ => (n % 11) as i64 - 5,
        };
        (id, Entry { score, reached_at: if n % 40 == 0 { u64::MAX } else { 1_000_000 + n / 3 } })
    });
    RankTree::from_unsorted(order, Arc::new(Users::new()), rows).unwrap()
}

fn bytes_of(tree: &RankTree) -> Vec<u8> {
    let mut bytes = Vec::new();
    tree.write_checkpoint(&mut bytes).unwrap();
    bytes
}

fn load(order: Order, bytes: &[u8]) -> Result<RankTree, CheckpointError> {
    RankTree::read_checkpoint(order, Arc::new(Users::new()), bytes)
}

fn content(tree: &RankTree) -> Vec<(String, Entry, u64)> {
    tree.standings(0, Ties::Dense)
        .map(|row| (tree.users().id(row.user).unwrap(), row.entry, row.rank))
        .collect()
}

#[test]
fn a_loaded_tree_is_the_written_one() {
    for order in [Order::High, Order::Low] {
        for users in [0, 1, 63, 64, 65, 5_000, 40_000] {
            let written = tree(order, users);
            let loaded = load(order, &bytes_of(&written)).unwrap();
            loaded.verify().unwrap();
            assert_eq!(content(&loaded), content(&written), "{users} users");
            assert_eq!(bytes_of(&loaded), bytes_of(&written));
        }
    }
}

#[test]
fn a_loaded_tree_goes_on_like_any_other() {
    let mut loaded = load(Order::High, &bytes_of(&tree(Order::High, 3_000))).unwrap();
    for n in 0..3_000 {
        loaded.set(&format!("new-{n:08}"), Entry { score: n % 20, reached_at: 5 }).unwrap();
        loaded.remove(&format!("user-{:012}", n * 3));
    }
    loaded.verify().unwrap();
    assert_eq!(loaded.len(), 5_000);
}

/// A small file, so that every byte can be tried.
#[test]
fn every_flipped_byte_is_refused() {
    let bytes = bytes_of(&tree(Order::High, 60));
    for at in 0..bytes.len() {
        for flip in [0x01, 0x80, 0xFF] {
            let mut damaged = bytes.clone();
            damaged[at] ^= flip;
            let error = load(Order::High, &damaged).expect_err("a flipped byte must be noticed");
            assert!(
                matches!(
                    error,
                    CheckpointError::Damaged { .. }
                        | CheckpointError::NotACheckpoint
                        | CheckpointError::Version { .. }
                        | CheckpointError::Truncated { .. }
                ),
                "byte {at}: {error}"
            );
        }
    }
}

#[test]
fn every_cut_is_refused_and_leaves_no_users_behind() {
    let bytes = bytes_of(&tree(Order::High, 60));
    for length in 0..bytes.len() {
        let users = Arc::new(Users::new());
        let error = RankTree::read_checkpoint(Order::High, Arc::clone(&users), &bytes[..length])
            .expect_err("a cut file must be noticed");
        assert!(
            matches!(error, CheckpointError::Truncated { .. } | CheckpointError::NotACheckpoint),
            "cut at {length}: {error}"
        );
        assert!(users.is_empty(), "cut at {length}");
    }
}

#[test]
fn a_lost_or_repeated_or_swapped_block_is_refused() {
    // Ids of one length and scores of one value make all blocks of one size, so whole blocks can be moved about.
    let rows = (0..20_000).map(|n| (format!("user-{n:020}"), Entry { score: 0, reached_at: n }));
    let tree = RankTree::from_unsorted(Order::High, Arc::new(Users::new()), rows).unwrap();
    let bytes = bytes_of(&tree);
    let header = 8 + 4 + 1 + 8 + 4;
    let length = |at: usize| 12 + u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap()) as usize + 4;
    let (first, second) = (header, header + length(header));
    let third = second + length(second);
    let parts = |ranges: &[std::ops::Range<usize>]| -> Vec<u8> {
        ranges.iter().flat_map(|range| bytes[range.clone()].to_vec()).collect()
    };
    let end = bytes.len();
    for damaged in [
        parts(&[0..first, second..end]),
        parts(&[0..second, first..end]),
        parts(&[0..first, second..third, first..second, third..end]),
    ] {
        assert!(matches!(load(Order::High, &damaged), Err(CheckpointError::Damaged { .. })));
    }
    assert!(load(Order::High, &parts(&[0..second, second..end])).is_ok());
}

#[test]
fn a_wrong_number_of_users_is_refused_even_if_its_checksum_is_right() {
    let mut bytes = bytes_of(&tree(Order::High, 60));
    let end = bytes.len() - 24;
    bytes[end + 12] += 1;
    let seal = crc32fast::hash(&bytes[end..end + 20]);
    bytes[end + 20..].copy_from_slice(&seal.to_le_bytes());
    let error = load(Order::High, &bytes).expect_err("61 users are said to be there");
    assert!(error.to_string().contains("the number of users is not that of the rows"), "{error}");
}

#[test]
fn another_order_or_version_or_file_is_refused_by_name() {
    let bytes = bytes_of(&tree(Order::Low, 5));
    assert!(matches!(load(Order::High, &bytes), Err(CheckpointError::OtherOrder { found: Order::Low })));
    let mut newer = bytes.clone();
    newer[8] = 2;
    assert!(matches!(load(Order::Low, &newer), Err(CheckpointError::Version { found: 2 })));
    assert!(matches!(load(Order::Low, b"<html>"), Err(CheckpointError::NotACheckpoint)));
    assert!(matches!(
        load(Order::Low, b"REDIS0011\xfa\x09redis-ver\x057.0.15"),
        Err(CheckpointError::NotACheckpoint)
    ));
}

#[test]
fn rows_in_any_order_load_and_the_last_of_a_user_counts() {
    let mut bytes = Vec::new();
    let mut writer = CheckpointWriter::new(&mut bytes, Order::High, 0).unwrap();
    let rows = [("ann", 5), ("bob", 9), ("cat", 1), ("ann", 20), ("dan", 9)];
    for (at, (user, score)) in rows.into_iter().enumerate() {
        writer.push(user, Entry { score, reached_at: at as u64 }).unwrap();
    }
    assert!(matches!(writer.push("", Entry { score: 0, reached_at: 0 }), Err(CheckpointError::User(_))));
    writer.finish().unwrap();
    let tree = load(Order::High, &bytes).unwrap();
    tree.verify().unwrap();
    let users: Vec<String> = content(&tree).into_iter().map(|row| row.0).collect();
    assert_eq!(users, ["ann", "bob", "dan", "cat"]);
    assert_eq!(tree.users().len(), 4);
}

#[test]
fn a_reader_takes_its_bytes_and_no_more() {
    let mut stream = Cursor::new([bytes_of(&tree(Order::High, 100)), b"what follows".to_vec()].concat());
    RankTree::read_checkpoint(Order::High, Arc::new(Users::new()), &mut stream).unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "what follows");
}
