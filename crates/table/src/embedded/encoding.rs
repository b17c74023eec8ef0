//! Bytes on disk: keys whose byte order is the table's order, and row values.
//!
//! ```text
//! item key     hash(PK) 2 bytes │ PK escaped │ SK
//! index key    partition escaped │ sort │ PK escaped │ SK        sort: text escaped, or 8 bytes
//! expiry key   seconds 8 bytes │ item key
//! value        1 │ 0, or 1 and expires_at 8 bytes │ count │ (name, type, value)…
//! ```
//!
//! - *Escaped*: a zero byte becomes `00 FF` and the end is `00 01`, so that "a" stands before "a\0" and a
//!   prefix of the text is a prefix of its bytes. The last part of a key needs no end.
//! - A number is 8 bytes, big end first, with its sign bit turned, so that −1 stands before 0.
//! - The hash before the PK spreads partitions evenly over the key space: a segment of a scan is then one
//!   contiguous range, and all segments are about as long. Nothing ever asks for partitions in order.
//! - An index row's value leaves out the index's own attributes; they are in its key. `expires_at` stands in
//!   front of every value too, so that a row that is gone is passed over without decoding it.
//!
//! Decoding trusts nothing: bytes that do not parse are reported, never guessed at.

use crate::item::{Attributes, EXPIRES_AT, Item, PK, SK, Value};
use crate::key::{Key, SortType, SortValue, Text};
use crate::limits::DEPTH_MAX;
use crate::schema::{Index, SortRef};

/// What a row that does not parse is reported as.
pub(crate) type Damage = &'static str;

const FORMAT: u8 = 1;
const ESCAPED_ZERO: u8 = 0xFF;
const END: u8 = 0x01;

const TAG_STRING: u8 = 1;
const TAG_NUMBER: u8 = 2;
const TAG_FALSE: u8 = 3;
const TAG_TRUE: u8 = 4;
const TAG_BYTES: u8 = 5;
const TAG_LIST: u8 = 6;
const TAG_MAP: u8 = 7;

/// The engine's own kind of bytes, written without a copy or allocation more than it needs itself.
/// Rows are encoded on callers' threads, in great numbers: this was a tenth of the cost of a write.
pub(crate) fn slice(write: impl FnOnce(&mut Vec<u8>)) -> fjall::Slice {
    thread_local! {
        static BUFFER: std::cell::RefCell<Vec<u8>> = const { std::cell::RefCell::new(Vec::new()) };
    }
    BUFFER.with_borrow_mut(|buffer| {
        buffer.clear();
        write(buffer);
        let slice = fjall::Slice::from(buffer.as_slice());
        // One large item should not stay in memory for every thread that ever wrote one.
        buffer.shrink_to(64 << 10);
        slice
    })
}

/// How many different hashes stand in front of item keys.
pub(crate) const HASHES: usize = 1 << 16;

// Keys.

/// The bytes all items of a partition begin with.
pub(crate) fn item_partition(pk: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(pk.len() + 48);
    push_item_partition(&mut bytes, pk);
    bytes
}

fn push_item_partition(bytes: &mut Vec<u8>, pk: &str) {
    let hash = xxhash_rust::xxh3::xxh3_64(pk.as_bytes()) >> 48;
    bytes.extend_from_slice(&(hash as u16).to_be_bytes());
    push_escaped(bytes, pk);
}

/// The key of an item.
pub(crate) fn item_key(key: &Key) -> Vec<u8> {
    let mut bytes = item_partition(&key.pk);
    bytes.extend_from_slice(key.sk.as_bytes());
    bytes
}

/// Adds the key of an item.
pub(crate) fn push_item_key(bytes: &mut Vec<u8>, key: &Key) {
    push_item_partition(bytes, &key.pk);
    bytes.extend_from_slice(key.sk.as_bytes());
}

/// The key whose bytes these are.
pub(crate) fn decode_item_key(bytes: &[u8]) -> Result<Key, Damage> {
    let (_, rest) = bytes.split_at_checked(2).ok_or("the key is too short")?;
    decode_key(rest)
}

/// The bytes all rows of an index partition begin with.
pub(crate) fn index_partition(partition: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(partition.len() + 96);
    push_escaped(&mut bytes, partition);
    bytes
}

/// The key of an item's row in an index.
pub(crate) fn index_key<'a>(partition: &str, sort: impl Into<SortRef<'a>>, key: &Key) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(partition.len() + 128);
    push_index_key(&mut bytes, partition, sort.into(), key);
    bytes
}

/// Adds the key of an item's row in an index.
pub(crate) fn push_index_key(bytes: &mut Vec<u8>, partition: &str, sort: SortRef<'_>, key: &Key) {
    push_escaped(bytes, partition);
    push_sort(bytes, sort);
    push_escaped(bytes, &key.pk);
    bytes.extend_from_slice(key.sk.as_bytes());
}

/// The partition, sort value and item key of an index row.
pub(crate) fn decode_index_key(bytes: &[u8], sort_type: SortType) -> Result<(Text, SortValue, Key), Damage> {
    let (partition, rest) = take_escaped(bytes)?;
    let (sort, rest) = match sort_type {
        SortType::String => {
            let (text, rest) = take_escaped(rest)?;
            (SortValue::String(text), rest)
        }
        SortType::Number => {
            let (number, rest) = take_number(rest)?;
            (SortValue::Number(number), rest)
        }
    };
    Ok((partition, sort, decode_key(rest)?))
}

/// The key under which the sweeper finds an item that expires.
pub(crate) fn expiry_key(expires_at: i64, item_key: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(8 + item_key.len());
    push_number(&mut bytes, expires_at);
    bytes.extend_from_slice(item_key);
    bytes
}

/// The second and the item key of an expiry row.
pub(crate) fn decode_expiry_key(bytes: &[u8]) -> Result<(i64, Key), Damage> {
    let (expires_at, rest) = take_number(bytes)?;
    Ok((expires_at, decode_item_key(rest)?))
}

/// Adds text so that its end is marked and order is kept.
pub(crate) fn push_escaped(bytes: &mut Vec<u8>, text: &str) {
    push_escaped_prefix(bytes, text);
    bytes.extend_from_slice(&[0, END]);
}

/// Adds text without its end: what the bytes of every text that begins with it begin with.
pub(crate) fn push_escaped_prefix(bytes: &mut Vec<u8>, text: &str) {
    if text.as_bytes().contains(&0) {
        for byte in text.bytes() {
            bytes.push(byte);
            if byte == 0 {
                bytes.push(ESCAPED_ZERO);
            }
        }
    } else {
        bytes.extend_from_slice(text.as_bytes());
    }
}

/// Adds a sort value so that order is kept.
pub(crate) fn push_sort(bytes: &mut Vec<u8>, sort: SortRef<'_>) {
    match sort {
        SortRef::String(text) => push_escaped(bytes, text),
        SortRef::Number(number) => push_number(bytes, number),
    }
}

/// Adds a number so that order is kept.
pub(crate) fn push_number(bytes: &mut Vec<u8>, number: i64) {
    bytes.extend_from_slice(&(number ^ i64::MIN).to_be_bytes());
}

fn decode_key(bytes: &[u8]) -> Result<Key, Damage> {
    let (pk, rest) = take_escaped(bytes)?;
    let sk = std::str::from_utf8(rest).map_err(|_| "the sort key is not text")?;
    Ok(Key { pk, sk: sk.into() })
}

fn take_number(bytes: &[u8]) -> Result<(i64, &[u8]), Damage> {
    let (number, rest) = bytes.split_first_chunk::<8>().ok_or("a number in the key is cut short")?;
    Ok((i64::from_be_bytes(*number) ^ i64::MIN, rest))
}

fn take_escaped(bytes: &[u8]) -> Result<(Text, &[u8]), Damage> {
    let not_text = "a text in the key is not text";
    let zero = bytes.iter().position(|byte| *byte == 0).ok_or("a text in the key has no end")?;
    if bytes.get(zero + 1) == Some(&END) {
        let text = std::str::from_utf8(&bytes[..zero]).map_err(|_| not_text)?;
        return Ok((text.into(), &bytes[zero + 2..]));
    }
    let mut text = Vec::with_capacity(bytes.len());
    let mut at = 0;
    loop {
        match (bytes.get(at), bytes.get(at + 1)) {
            (Some(0), Some(&END)) => break,
            (Some(0), Some(&ESCAPED_ZERO)) => {
                text.push(0);
                at += 2;
            }
            (Some(0), _) | (None, _) => return Err("a text in the key has no end"),
            (Some(byte), _) => {
                text.push(*byte);
                at += 1;
            }
        }
    }
    let text = String::from_utf8(text).map_err(|_| not_text)?;
    Ok((text.into(), &bytes[at + 2..]))
}

// Values.

/// Adds the value of an item's row.
pub(crate) fn push_item_value(bytes: &mut Vec<u8>, item: &Item) {
    push_header(bytes, item);
    push_length(bytes, item.attributes.len());
    for (name, value) in item.attributes.iter() {
        push_attribute(bytes, name, value);
    }
}

/// The item whose row this is.
pub(crate) fn decode_item(key: &[u8], value: &[u8]) -> Result<Item, Damage> {
    let key = decode_item_key(key)?;
    let (_, rest) = decode_header(value)?;
    Ok(Item { key, attributes: decode_attributes(rest, 0)? })
}

/// Adds the value of an item's row in an index.
pub(crate) fn push_index_value(bytes: &mut Vec<u8>, index: &Index, item: &Item) {
    let kept = |name: &str| index.carries(name) && name != index.partition && name != index.sort;
    let count = item.attributes.iter().filter(|(name, _)| kept(name)).count();
    push_header(bytes, item);
    push_length(bytes, count);
    for (name, value) in item.attributes.iter().filter(|(name, _)| kept(name)) {
        push_attribute(bytes, name, value);
    }
}

/// The item as an index row shows it.
pub(crate) fn decode_index_row(index: &Index, key: &[u8], value: &[u8]) -> Result<Item, Damage> {
    let (partition, sort, key) = decode_index_key(key, index.sort_type)?;
    let (_, rest) = decode_header(value)?;
    let mut attributes = decode_attributes(rest, 0)?;
    if index.partition != PK && index.partition != SK {
        attributes.set(index.partition.clone(), partition);
    }
    if index.sort != PK && index.sort != SK {
        match sort {
            SortValue::String(text) => attributes.set(index.sort.clone(), text),
            SortValue::Number(number) => attributes.set(index.sort.clone(), number),
        }
    }
    Ok(Item { key, attributes })
}

/// The second from which a row is gone, without decoding the rest of it.
pub(crate) fn decode_expires_at(value: &[u8]) -> Result<Option<i64>, Damage> {
    Ok(decode_header(value)?.0)
}

fn push_header(bytes: &mut Vec<u8>, item: &Item) {
    bytes.push(FORMAT);
    match item.number(EXPIRES_AT) {
        None => bytes.push(0),
        Some(expires_at) => {
            bytes.push(1);
            bytes.extend_from_slice(&expires_at.to_be_bytes());
        }
    }
}

fn decode_header(bytes: &[u8]) -> Result<(Option<i64>, &[u8]), Damage> {
    match bytes {
        [FORMAT, 0, rest @ ..] => Ok((None, rest)),
        [FORMAT, 1, rest @ ..] => {
            let (expires_at, rest) = rest.split_first_chunk::<8>().ok_or("the row is cut short")?;
            Ok((Some(i64::from_be_bytes(*expires_at)), rest))
        }
        _ => Err("the row has no known format"),
    }
}

fn push_attribute(bytes: &mut Vec<u8>, name: &str, value: &Value) {
    push_bytes(bytes, name.as_bytes());
    push_value(bytes, value);
}

fn push_value(bytes: &mut Vec<u8>, value: &Value) {
    match value {
        Value::String(text) => {
            bytes.push(TAG_STRING);
            push_bytes(bytes, text.as_bytes());
        }
        Value::Number(number) => {
            bytes.push(TAG_NUMBER);
            // Zigzag: small numbers of either sign are short.
            push_varint(bytes, ((number << 1) ^ (number >> 63)) as u64);
        }
        Value::Bool(false) => bytes.push(TAG_FALSE),
        Value::Bool(true) => bytes.push(TAG_TRUE),
        Value::Bytes(content) => {
            bytes.push(TAG_BYTES);
            push_bytes(bytes, content);
        }
        Value::List(values) => {
            bytes.push(TAG_LIST);
            push_length(bytes, values.len());
            values.iter().for_each(|value| push_value(bytes, value));
        }
        Value::Map(map) => {
            bytes.push(TAG_MAP);
            push_length(bytes, map.len());
            map.iter().for_each(|(name, value)| push_attribute(bytes, name, value));
        }
    }
}

fn push_bytes(bytes: &mut Vec<u8>, content: &[u8]) {
    push_length(bytes, content.len());
    bytes.extend_from_slice(content);
}

fn push_length(bytes: &mut Vec<u8>, length: usize) {
    push_varint(bytes, length as u64);
}

fn push_varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn decode_attributes(bytes: &[u8], depth: usize) -> Result<Attributes, Damage> {
    let mut reader = Reader(bytes);
    let attributes = reader.attributes(depth)?;
    if reader.0.is_empty() { Ok(attributes) } else { Err("the row goes on after its end") }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn attributes(&mut self, depth: usize) -> Result<Attributes, Damage> {
        let count = self.length()?;
        let mut attributes = Attributes::with_capacity(count);
        for _ in 0..count {
            let name = self.text()?;
            let value = self.value(depth)?;
            attributes.set(name, value);
        }
        if attributes.len() == count { Ok(attributes) } else { Err("an attribute is there twice") }
    }

    fn value(&mut self, depth: usize) -> Result<Value, Damage> {
        if depth > DEPTH_MAX {
            return Err("the row is nested too deeply");
        }
        Ok(match self.byte()? {
            TAG_STRING => Value::String(self.text()?),
            TAG_NUMBER => {
                let zigzag = self.varint()?;
                Value::Number((zigzag >> 1) as i64 ^ -((zigzag & 1) as i64))
            }
            TAG_FALSE => Value::Bool(false),
            TAG_TRUE => Value::Bool(true),
            TAG_BYTES => Value::Bytes(self.bytes()?.to_vec()),
            TAG_LIST => {
                let count = self.length()?;
                Value::List((0..count).map(|_| self.value(depth + 1)).collect::<Result<_, _>>()?)
            }
            TAG_MAP => Value::Map(self.attributes(depth + 1)?),
            _ => return Err("an attribute has no known type"),
        })
    }

    fn text(&mut self) -> Result<Text, Damage> {
        std::str::from_utf8(self.bytes()?).map(Text::from).map_err(|_| "a text in the row is not text")
    }

    fn bytes(&mut self) -> Result<&'a [u8], Damage> {
        let length = self.length()?;
        let (content, rest) = self.0.split_at(length);
        self.0 = rest;
        Ok(content)
    }

    /// A count or length; never more than what is left, since everything counted takes at least a byte.
    fn length(&mut self) -> Result<usize, Damage> {
        let length = usize::try_from(self.varint()?).unwrap_or(usize::MAX);
        if length > self.0.len() { Err("the row is cut short") } else { Ok(length) }
    }

    fn varint(&mut self) -> Result<u64, Damage> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err("a number in the row has no end")
    }

    fn byte(&mut self) -> Result<u8, Damage> {
        let (byte, rest) = self.0.split_first().ok_or("the row is cut short")?;
        self.0 = rest;
        Ok(*byte)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::Random;

    #[test]
    fn keys_keep_their_order_and_come_back() {
        let texts = ["\0", "\0\0", "\0\u{1}", "a", "a\0", "a\0\0b", "a\u{1}", "b", "ÿ", "😀"];
        let numbers = [i64::MIN, -256, -1, 0, 1, 255, i64::MAX];
        let mut sorts: Vec<SortValue> = numbers.iter().map(|number| (*number).into()).collect();
        sorts.extend(texts.iter().map(|text| SortValue::from(*text)));
        let mut keys = Vec::new();
        for partition in texts {
            for sort in &sorts {
                for (pk, sk) in [("a", "b"), ("a", "b\0"), ("a\0", "a"), ("b", "a")] {
                    keys.push((partition, sort.clone(), Key::new(pk, sk)));
                }
            }
        }
        for (partition, sort, key) in &keys {
            let bytes = index_key(partition, sort, key);
            let decoded = decode_index_key(&bytes, sort.sort_type()).unwrap();
            assert_eq!(decoded, ((*partition).into(), sort.clone(), key.clone()));
            for (other_partition, other_sort, other_key) in &keys {
                if sort.sort_type() == other_sort.sort_type() {
                    let other = index_key(other_partition, other_sort, other_key);
                    let expected = (partition.as_bytes(), sort, &key.pk, &key.sk).cmp(&(
                        other_partition.as_bytes(),
                        other_sort,
                        &other_key.pk,
                        &other_key.sk,
                    ));
                    assert_eq!(bytes.cmp(&other), expected);
                }
            }
            assert_eq!(decode_item_key(&item_key(key)).unwrap(), *key);
            assert_eq!(decode_expiry_key(&expiry_key(-5, &item_key(key))).unwrap(), (-5, key.clone()));
        }
    }

    #[test]
    fn a_damaged_row_is_an_error_and_never_a_panic() {
        let map: Attributes =
            [("x", Value::from(i64::MIN)), ("y", Value::from(vec![1_u8, 2, 3]))].into_iter().collect();
        let item =
            Item::new("A\0B", "s").with("expires_at", 7).with("list", vec![map.into(), Value::from("t")]);
        let key = item_key(&item.key);
        let mut value = Vec::new();
        push_item_value(&mut value, &item);
        assert_eq!(decode_item(&key, &value).unwrap(), item);
        let mut random = Random::new(1);
        for _ in 0..20_000 {
            let (mut key, mut value) = (key.clone(), value.clone());
            let bytes = if random.one_in(4) { &mut key } else { &mut value };
            let at = random.below(bytes.len() as u64) as usize;
            if random.one_in(3) {
                bytes.truncate(at);
            } else {
                bytes[at] = random.next_u64() as u8;
            }
            let _ = decode_item(&key, &value);
        }
    }
}
