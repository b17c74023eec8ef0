//! Points with decimals, exactly: `12.345` on a board of three decimals is the integer 12345.
//!
//! Floating point is nowhere on the way: what a caller writes is what is stored, over all 64 bits.

use crate::error::{Error, Result};

/// The most decimals a board may have: with more, ordinary scores would not fit.
pub const DECIMALS_MAX: u8 = 9;

/// Reads points as a caller writes them: a JSON number, at most `decimals` digits behind the point.
///
/// # Errors
/// [`Error::InvalidPoints`], which says what is wrong with them.
pub fn parse(text: &str, decimals: u8) -> Result<i64> {
    let invalid = |why: &'static str| Error::InvalidPoints { why };
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (mantissa, exponent) = match digits.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => {
            (mantissa, exponent.parse::<i32>().map_err(|_| invalid("must be a number"))?)
        }
        None => (digits, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() || !whole.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit()) {
        return Err(invalid("must be a number"));
    }
    // The value is `whole fraction` × 10^shift once it is an integer of the board's smallest unit.
    let fraction = fraction.trim_end_matches('0');
    let mut number = 0_i128;
    for digit in whole.bytes().chain(fraction.bytes()) {
        number = number * 10 + i128::from(digit - b'0');
        if number > i128::from(u64::MAX) * 1_000_000_000 {
            return Err(Error::PointsTooLarge);
        }
    }
    let fraction_digits = i64::try_from(fraction.len()).map_err(|_| Error::PointsTooLarge)?;
    let shift = i64::from(decimals) - fraction_digits + i64::from(exponent);
    if number == 0 {
        return Ok(0);
    }
    for _ in 0..shift.unsigned_abs().min(64) {
        if shift > 0 {
            number = number.checked_mul(10).ok_or(Error::PointsTooLarge)?;
        } else if number % 10 == 0 {
            number /= 10;
        } else if decimals == 0 {
            return Err(invalid("must be a whole number: this board has no decimals"));
        } else {
            return Err(invalid("must not have more digits behind the point than the board's decimals"));
        }
    }
    i64::try_from(if negative { -number } else { number }).map_err(|_| Error::PointsTooLarge)
}

/// Writes a score as callers read it: with exactly the board's decimals.
pub fn format(score: i64, decimals: u8) -> String {
    if decimals == 0 {
        return score.to_string();
    }
    let unit = 10_u64.pow(u32::from(decimals));
    let magnitude = score.unsigned_abs();
    let sign = if score < 0 { "-" } else { "" };
    format!("{sign}{}.{:0width$}", magnitude / unit, magnitude % unit, width = usize::from(decimals))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_exactly() {
        for (text, decimals, points) in [
            ("0", 0, 0),
            ("-0", 0, 0),
            ("0.000", 0, 0),
            ("7", 0, 7),
            ("7.0", 0, 7),
            ("9223372036854775807", 0, i64::MAX),
            ("-9223372036854775808", 0, i64::MIN),
            ("12.345", 3, 12_345),
            ("12.3", 3, 12_300),
            ("-0.001", 3, -1),
            ("1e3", 0, 1_000),
            ("1.5E1", 0, 15),
            ("1500e-2", 0, 15),
            ("0e999999", 0, 0),
            ("9223372036854775.807", 3, i64::MAX),
        ] {
            assert_eq!(parse(text, decimals).unwrap(), points, "{text}");
        }
        for (text, decimals) in [
            ("9223372036854775808", 0),
            ("-9223372036854775809", 0),
            ("1.5", 0),
            ("12.3456", 3),
            ("1e-1", 0),
            ("1e400", 0),
            ("1e-400", 0),
            ("9e99999999999", 0),
            ("1e18", 9),
            ("", 0),
            ("-", 0),
            (".5", 1),
            ("+5", 0),
            ("0x10", 0),
            ("NaN", 0),
            ("\"5\"", 0),
            ("5 ", 0),
            (&"9".repeat(100_000), 0),
            ("true", 0),
        ] {
            assert!(parse(text, decimals).is_err(), "{text:.20}");
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        for score in [0, 1, -1, 999, 1_000, -12_345, i64::MAX, i64::MIN] {
            for decimals in 0..=DECIMALS_MAX {
                assert_eq!(parse(&format(score, decimals), decimals).unwrap(), score);
            }
        }
        assert_eq!(format(-5, 3), "-0.005");
        assert_eq!(format(12_300, 3), "12.300");
    }
}
