//! Cursors: where a page ended, for the caller to hand back. Opaque, bound to board and season, and checked.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rank_tree::Mark;

use crate::error::{Error, Result};
use crate::ranking::SeasonKey;

const VERSION: u8 = 1;

/// The cursor behind a mark.
pub(crate) fn encode(season: &SeasonKey, mark: &Mark) -> String {
    let mut bytes = vec![VERSION];
    bytes.extend_from_slice(&mark.score.to_le_bytes());
    bytes.extend_from_slice(&mark.reached_at.to_le_bytes());
    bytes.extend_from_slice(mark.user.as_bytes());
    bytes.extend_from_slice(&seal(season, &bytes).to_le_bytes());
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The mark behind a cursor.
///
/// # Errors
/// [`Error::InvalidCursor`] if it is not one of ours, or of another board or season.
pub(crate) fn decode(season: &SeasonKey, cursor: &str) -> Result<Mark> {
    let invalid = |why| Error::InvalidCursor { why };
    let bytes = URL_SAFE_NO_PAD.decode(cursor).map_err(|_| invalid("is not one of ours"))?;
    let (content, sealed) = bytes.split_last_chunk::<4>().ok_or(invalid("is cut short"))?;
    if u32::from_le_bytes(*sealed) != seal(season, content) {
        return Err(invalid("is damaged, or of another board or season"));
    }
    let (version, rest) = content.split_first().ok_or(invalid("is cut short"))?;
    let (score, rest) = rest.split_first_chunk::<8>().ok_or(invalid("is cut short"))?;
    let (reached_at, user) = rest.split_first_chunk::<8>().ok_or(invalid("is cut short"))?;
    if *version != VERSION {
        return Err(invalid("was made by another release"));
    }
    Ok(Mark {
        score: i64::from_le_bytes(*score),
        reached_at: u64::from_le_bytes(*reached_at),
        user: String::from_utf8(user.to_vec()).map_err(|_| invalid("is damaged"))?,
    })
}

/// A cursor of any other list: where it ended, in the list's own words. `scope` says which list.
pub(crate) fn encode_text(scope: &str, place: &str) -> String {
    let mut bytes = vec![VERSION];
    bytes.extend_from_slice(place.as_bytes());
    bytes.extend_from_slice(&seal_text(scope, &bytes).to_le_bytes());
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The way back.
///
/// # Errors
/// [`Error::InvalidCursor`] if it is not one of ours, or of another list.
pub(crate) fn decode_text(scope: &str, cursor: &str) -> Result<String> {
    let invalid = |why| Error::InvalidCursor { why };
    let bytes = URL_SAFE_NO_PAD.decode(cursor).map_err(|_| invalid("is not one of ours"))?;
    let (content, sealed) = bytes.split_last_chunk::<4>().ok_or(invalid("is cut short"))?;
    if u32::from_le_bytes(*sealed) != seal_text(scope, content) {
        return Err(invalid("is damaged, or of another list"));
    }
    match content.split_first() {
        Some((&VERSION, place)) => String::from_utf8(place.to_vec()).map_err(|_| invalid("is damaged")),
        _ => Err(invalid("was made by another release")),
    }
}

fn seal_text(scope: &str, content: &[u8]) -> u32 {
    let mut hash = crc32fast::Hasher::new();
    hash.update(scope.as_bytes());
    hash.update(b"\n");
    hash.update(content);
    hash.finalize()
}

/// Ties the content to board and season. Not a secret: a forged cursor can only begin a page elsewhere in the same list.
fn seal(season: &SeasonKey, content: &[u8]) -> u32 {
    let mut hash = crc32fast::Hasher::new();
    hash.update(season.board.as_str().as_bytes());
    hash.update(b"#");
    hash.update(season.season.as_str().as_bytes());
    hash.update(b"#");
    hash.update(content);
    hash.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::BoardId;
    use crate::season::Season;

    fn key(board: &str, season: &str) -> SeasonKey {
        SeasonKey { board: BoardId::new(board).unwrap(), season: Season::stored(season) }
    }

    #[test]
    fn a_cursor_of_another_list_is_refused() {
        let cursor = encode_text("plays#ann#a", "ü\n1");
        assert_eq!(decode_text("plays#ann#a", &cursor).unwrap(), "ü\n1");
        for (scope, cursor) in [("plays#bob#a", &*cursor), ("plays#ann#a", &cursor[1..]), ("plays#ann#a", "")]
        {
            assert!(decode_text(scope, cursor).is_err(), "{scope} {cursor}");
        }
    }

    #[test]
    fn a_cursor_comes_back_for_its_own_board_and_season_only() {
        let mark = Mark { score: i64::MIN, reached_at: u64::MAX, user: "ü".into() };
        let cursor = encode(&key("a", "2026-11"), &mark);
        assert_eq!(decode(&key("a", "2026-11"), &cursor).unwrap(), mark);
        for other in [key("b", "2026-11"), key("a", "2026-12")] {
            assert!(decode(&other, &cursor).is_err());
        }
        for at in 0..cursor.len() {
            let mut bad = cursor.clone().into_bytes();
            bad[at] = if bad[at] == b'A' { b'B' } else { b'A' };
            assert!(decode(&key("a", "2026-11"), std::str::from_utf8(&bad).unwrap()).is_err());
            assert!(decode(&key("a", "2026-11"), &cursor[..at]).is_err());
        }
    }
}
