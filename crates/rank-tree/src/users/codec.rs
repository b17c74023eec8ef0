//! Shorter bytes for user ids of the shapes that games really use.
//!
//! An id is the largest thing we keep of a user, and most ids say little per byte: a UUID carries 16
//! bytes in 36 characters, a Steam id 7 in 17, `user-0000000000000012345` the same five-letter prefix
//! 25 million times. The encoded form is one tag byte and a payload:
//!
//! | tag | ids | payload |
//! |---|---|---|
//! | 0 | anything | the bytes as they are |
//! | 1 | lower-case hyphenated UUID | 16 bytes |
//! | 2–5 | `[0-9A-Za-z_-]`, the tag keeps the length modulo 4 | 6 bits a character |
//! | 16 + 4 p + v | known prefix `p`, then 8 or more hexadecimal digits; v: upper case?, odd? | 4 bits a digit |
//!
//! **The encoding is canonical**: equal ids encode to equal bytes for the life of one [`Prefixes`], which is
//! what lets the table of users hash and compare encoded bytes. The delicate case is a prefix. It is
//! learned when the first id that wants it is *stored*, and never forgotten. So an id whose prefix is not
//! known was never stored in that form; and once all places for prefixes are taken an unknown prefix
//! stays unknown, and its ids use the next form from then on. A prefix is only learned when it ends in a
//! separator, so that random ids do not use the places up.
//!
//! Encoded bytes do not keep the order of ids: comparing two ids means decoding them.

/// The longest user id, in bytes. An encoded id is at most one byte longer.
pub(crate) const ID_BYTES_MAX: usize = 254;

/// A buffer that holds any id, encoded or decoded, with room for a last group of four symbols.
pub(crate) type Buffer = [u8; 256];

/// An empty buffer to encode or decode into.
pub(crate) const BUFFER: Buffer = [0; 256];

const TAG_RAW: u8 = 0;
const TAG_UUID: u8 = 1;
const TAG_SIX_BIT: u8 = 2;
const TAG_PREFIXED: u8 = 16;
const VARIANT_ODD: u8 = 1;
const VARIANT_UPPER: u8 = 2;

const PREFIXES_MAX: usize = (256 - TAG_PREFIXED as usize) / 4;
const PREFIX_BYTES_MAX: usize = 16;
const DIGITS_MIN: usize = 8;

/// The prefixes learned so far. Place 0 is the empty prefix.
#[derive(Debug)]
pub(crate) struct Prefixes {
    places: Vec<Box<[u8]>>,
}

impl Prefixes {
    pub(crate) fn new() -> Self {
        Prefixes { places: vec![Box::default()] }
    }

    /// Encodes an id that is being stored; learns its prefix. `id` is at most [`ID_BYTES_MAX`] long.
    #[inline]
    pub(crate) fn encode_to_store<'b>(&mut self, id: &[u8], buffer: &'b mut Buffer) -> &'b [u8] {
        let length = self.encode(id, buffer).unwrap_or_else(|| {
            let (prefix_length, upper) = split_prefix(id).expect("only a prefix can be unknown");
            let (prefix, digits) = id.split_at(prefix_length);
            self.places.push(Box::from(prefix));
            encode_prefixed(self.places.len() as u8 - 1, digits, upper, buffer)
        });
        &buffer[..length]
    }

    /// Encodes an id that is being looked up; `None` if no stored id can have this form.
    #[inline]
    pub(crate) fn encode_to_find<'b>(&self, id: &[u8], buffer: &'b mut Buffer) -> Option<&'b [u8]> {
        self.encode(id, buffer).map(|length| &buffer[..length])
    }

    /// The length of the encoded id; `None` if its prefix is not known and could still be learned.
    #[inline]
    fn encode(&self, id: &[u8], buffer: &mut Buffer) -> Option<usize> {
        debug_assert!(id.len() <= ID_BYTES_MAX);
        if let Some(length) = encode_uuid(id, buffer) {
            return Some(length);
        }
        if let Some((prefix_length, upper)) = split_prefix(id) {
            let (prefix, digits) = id.split_at(prefix_length);
            match self.find(prefix) {
                Some(place) => return Some(encode_prefixed(place, digits, upper, buffer)),
                None if self.places.len() < PREFIXES_MAX => return None,
                None => {}
            }
        }
        Some(encode_plain(id, buffer))
    }

    /// The id behind encoded bytes that this `Prefixes` made.
    pub(crate) fn decode<'b>(&self, encoded: &[u8], buffer: &'b mut Buffer) -> &'b [u8] {
        let (tag, payload) = (encoded[0], &encoded[1..]);
        let length = match tag {
            TAG_RAW => {
                buffer[..payload.len()].copy_from_slice(payload);
                payload.len()
            }
            TAG_UUID => {
                let mut at = 0;
                for (index, byte) in payload.iter().enumerate() {
                    if matches!(index, 4 | 6 | 8 | 10) {
                        buffer[at] = b'-';
                        at += 1;
                    }
                    buffer[at] = LOWER_DIGITS[usize::from(byte >> 4)];
                    buffer[at + 1] = LOWER_DIGITS[usize::from(byte & 15)];
                    at += 2;
                }
                at
            }
            TAG_PREFIXED.. => {
                let place = usize::from((tag - TAG_PREFIXED) / 4);
                let prefix = &self.places[place];
                let symbols =
                    if (tag - TAG_PREFIXED) & VARIANT_UPPER != 0 { UPPER_DIGITS } else { LOWER_DIGITS };
                let odd = (tag - TAG_PREFIXED) & VARIANT_ODD != 0;
                buffer[..prefix.len()].copy_from_slice(prefix);
                let mut at = prefix.len();
                let (pairs, last) = payload.split_at(payload.len() - usize::from(odd));
                for byte in pairs {
                    buffer[at] = symbols[usize::from(byte >> 4)];
                    buffer[at + 1] = symbols[usize::from(byte & 15)];
                    at += 2;
                }
                for byte in last {
                    buffer[at] = symbols[usize::from(*byte)];
                    at += 1;
                }
                at
            }
            _ => {
                let remainder = usize::from(tag - TAG_SIX_BIT);
                let length = payload.len() / 3 * 4;
                // Three characters fill three bytes just as four do; the tag tells which it was.
                let length = match remainder {
                    0 => length,
                    3 => length - 1,
                    few => length + few,
                };
                for (group, bytes) in payload.chunks(3).enumerate() {
                    let mut word = [0; 4];
                    word[1..=bytes.len()].copy_from_slice(bytes);
                    let word = u32::from_be_bytes(word);
                    for place in 0..4 {
                        buffer[group * 4 + place] = SIX_BIT_SYMBOLS[(word >> (18 - 6 * place)) as usize & 63];
                    }
                }
                length
            }
        };
        &buffer[..length]
    }

    #[inline]
    fn find(&self, prefix: &[u8]) -> Option<u8> {
        self.places.iter().position(|known| **known == *prefix).map(|place| place as u8)
    }
}

const LOWER_DIGITS: &[u8; 16] = b"0123456789abcdef";
const UPPER_DIGITS: &[u8; 16] = b"0123456789ABCDEF";
const SIX_BIT_SYMBOLS: &[u8; 64] = b"-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz";

const CLASS_DECIMAL: u8 = 1;
const CLASS_LOWER: u8 = 2;
const CLASS_UPPER: u8 = 4;
const CLASS_SEPARATOR: u8 = 8;
const CLASS_OTHER: u8 = 16;

/// What kind of character each byte is, for finding the digits at the end of an id.
const CLASSES: [u8; 256] = {
    let mut classes = [CLASS_OTHER; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = match byte as u8 {
            b'0'..=b'9' => CLASS_DECIMAL,
            b'a'..=b'f' => CLASS_LOWER,
            b'A'..=b'F' => CLASS_UPPER,
            b'-' | b'_' | b':' | b'.' | b'|' | b'@' => CLASS_SEPARATOR,
            _ => CLASS_OTHER,
        };
        byte += 1;
    }
    classes
};

const NO_SYMBOL: u8 = 255;

const SIX_BIT_VALUES: [u8; 256] = {
    let mut values = [NO_SYMBOL; 256];
    let mut value = 0;
    while value < 64 {
        values[SIX_BIT_SYMBOLS[value] as usize] = value as u8;
        value += 1;
    }
    values
};

/// The value of a hexadecimal digit of either case.
#[inline]
fn digit_value(digit: u8) -> u8 {
    (digit & 15) + (digit >> 6) * 9
}

/// Where the digits begin if the id is `[prefix with a separator at its end] digits`, and whether the
/// digits are in upper case.
#[inline]
fn split_prefix(id: &[u8]) -> Option<(usize, bool)> {
    let mut seen = 0;
    let mut start = id.len();
    while start > 0 {
        let class = CLASSES[usize::from(id[start - 1])];
        if class >= CLASS_SEPARATOR {
            if class == CLASS_SEPARATOR {
                break;
            }
            return None;
        }
        seen |= class;
        start -= 1;
    }
    let both_cases = seen & (CLASS_LOWER | CLASS_UPPER) == CLASS_LOWER | CLASS_UPPER;
    if both_cases || id.len() - start < DIGITS_MIN || start > PREFIX_BYTES_MAX {
        return None;
    }
    Some((start, seen & CLASS_UPPER != 0))
}

#[inline]
fn encode_uuid(id: &[u8], buffer: &mut Buffer) -> Option<usize> {
    let id: &[u8; 36] = id.try_into().ok()?;
    let mut nibbles = 0;
    for (index, symbol) in id.iter().enumerate() {
        if matches!(index, 8 | 13 | 18 | 23) {
            if *symbol != b'-' {
                return None;
            }
            continue;
        }
        if CLASSES[usize::from(*symbol)] & (CLASS_DECIMAL | CLASS_LOWER) == 0 {
            return None;
        }
        let at = 1 + nibbles / 2;
        buffer[at] = buffer[at] << 4 | digit_value(*symbol);
        nibbles += 1;
    }
    buffer[0] = TAG_UUID;
    Some(17)
}

#[inline]
fn encode_prefixed(place: u8, digits: &[u8], upper: bool, buffer: &mut Buffer) -> usize {
    let odd = (digits.len() % 2) as u8 * VARIANT_ODD;
    buffer[0] = TAG_PREFIXED + 4 * place + odd + if upper { VARIANT_UPPER } else { 0 };
    let pairs = digits.chunks_exact(2);
    let mut length = 1 + digits.len() / 2;
    if let [last] = pairs.remainder() {
        buffer[length] = digit_value(*last);
        length += 1;
    }
    for (byte, pair) in buffer[1..].iter_mut().zip(pairs) {
        *byte = digit_value(pair[0]) << 4 | digit_value(pair[1]);
    }
    length
}

/// Six bits a character where that is possible, the bytes as they are elsewhere.
fn encode_plain(id: &[u8], buffer: &mut Buffer) -> usize {
    encode_six_bit(id, buffer).unwrap_or_else(|| {
        buffer[0] = TAG_RAW;
        buffer[1..=id.len()].copy_from_slice(id);
        id.len() + 1
    })
}

#[inline]
fn encode_six_bit(id: &[u8], buffer: &mut Buffer) -> Option<usize> {
    if id.iter().any(|symbol| SIX_BIT_VALUES[usize::from(*symbol)] == NO_SYMBOL) {
        return None;
    }
    buffer[0] = TAG_SIX_BIT + (id.len() % 4) as u8;
    let mut at = 1;
    for group in id.chunks(4) {
        let mut word = 0u32;
        for (place, symbol) in group.iter().enumerate() {
            word |= u32::from(SIX_BIT_VALUES[usize::from(*symbol)]) << (18 - 6 * place);
        }
        let used = (group.len() * 6).div_ceil(8);
        buffer[at..at + used].copy_from_slice(&word.to_be_bytes()[1..=used]);
        at += used;
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn round_trip(prefixes: &mut Prefixes, id: &str) -> usize {
        let (mut stored, mut found, mut decoded) = (BUFFER, BUFFER, BUFFER);
        // Stale bytes in a buffer must not leak into the encoding.
        found.fill(0xAA);
        let stored = prefixes.encode_to_store(id.as_bytes(), &mut stored).to_vec();
        let found = prefixes.encode_to_find(id.as_bytes(), &mut found).expect("it was stored");
        assert_eq!(stored, found, "{id:?} encodes to the same bytes each time");
        assert_eq!(prefixes.decode(&stored, &mut decoded), id.as_bytes(), "{id:?} comes back");
        stored.len()
    }

    #[test]
    fn ids_of_common_shapes_shrink() {
        let mut prefixes = Prefixes::new();
        assert_eq!(round_trip(&mut prefixes, "user-0000000000000012345"), 11);
        assert_eq!(round_trip(&mut prefixes, "550e8400-e29b-41d4-a716-446655440000"), 17);
        assert_eq!(round_trip(&mut prefixes, "76561197960287930"), 10);
        assert_eq!(round_trip(&mut prefixes, "8F3A29C01BD4E677"), 9);
        assert_eq!(round_trip(&mut prefixes, "kX3mZ9QwErTyUiOpAsDfGhJkLzXc"), 22);
        assert_eq!(round_trip(&mut prefixes, "마루"), 7);
    }

    #[test]
    fn ids_that_look_like_a_shape_but_are_not_survive() {
        let mut prefixes = Prefixes::new();
        for id in [
            "550E8400-e29b-41d4-a716-446655440000",
            "550e8400xe29b-41d4-a716-446655440000",
            "user-12345678aB",
            "user-1234567",
            "a-very-long-prefix-with-separators-12345678",
            "",
            "-",
            "--------",
            "12345678",
            "123456789",
            "ABCDEF01",
            "user@",
        ] {
            round_trip(&mut prefixes, id);
        }
        round_trip(&mut prefixes, &"é".repeat(ID_BYTES_MAX / 2));
        round_trip(&mut prefixes, &"7".repeat(ID_BYTES_MAX));
        round_trip(&mut prefixes, &"z".repeat(ID_BYTES_MAX));
    }

    #[test]
    fn a_lookup_does_not_learn_and_an_unknown_prefix_finds_nothing() {
        let mut prefixes = Prefixes::new();
        let mut buffer = BUFFER;
        assert!(prefixes.encode_to_find(b"guest-12345678", &mut buffer).is_none());
        round_trip(&mut prefixes, "guest-12345678");
        assert!(prefixes.encode_to_find(b"guest-87654321", &mut buffer).is_some());
    }

    #[test]
    fn ids_stay_findable_when_all_prefix_places_are_taken() {
        let mut prefixes = Prefixes::new();
        let ids: Vec<String> = (0..3 * PREFIXES_MAX).map(|n| format!("p{n}-00112233")).collect();
        let stored: Vec<Vec<u8>> = ids
            .iter()
            .map(|id| prefixes.encode_to_store(id.as_bytes(), &mut BUFFER.clone()).to_vec())
            .collect();
        let mut buffer = BUFFER;
        for (id, stored) in ids.iter().zip(&stored) {
            assert_eq!(prefixes.encode_to_find(id.as_bytes(), &mut buffer), Some(stored.as_slice()));
            round_trip(&mut prefixes, id);
        }
        assert_eq!(stored[0].len(), 5);
        assert_eq!(stored[ids.len() - 1].len(), 11, "six bits a character once the places are taken");
    }

    proptest! {
        #[test]
        fn any_id_comes_back(id in "[ -~가-힣]{0,60}") {
            round_trip(&mut Prefixes::new(), &id);
        }

        #[test]
        fn any_id_of_few_symbols_comes_back(id in "[0-9a-fA-F_:-]{0,40}") {
            round_trip(&mut Prefixes::new(), &id);
        }

        #[test]
        fn different_ids_encode_differently(a in "[0a_-]{0,12}", b in "[0a_-]{0,12}") {
            let mut prefixes = Prefixes::new();
            let (mut first, mut second) = (BUFFER, BUFFER);
            let first = prefixes.encode_to_store(a.as_bytes(), &mut first).to_vec();
            let second = prefixes.encode_to_store(b.as_bytes(), &mut second).to_vec();
            prop_assert_eq!(first == second, a == b);
        }
    }
}
