//! The users that ours and the rivals are loaded with: the same on both sides, and the same in each run.

/// A small generator of random numbers that is the same everywhere (splitmix64).
#[derive(Debug, Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }

    /// Strictly between 0 and 1.
    fn unit(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }
}

/// The shapes of user ids games use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum IdShape {
    /// `user-0000000000000012345`, 24 characters.
    Numbered,
    /// `550e8400-e29b-41d4-a716-446655440000`, 36 characters.
    Uuid,
    /// 24 random letters and digits.
    Random,
}

/// How scores are spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scores {
    /// Half of the users have at most 17 points, one in a hundred over 1,300: some 16,000 different scores among 25 M users, many ties.
    Skewed,
    /// Every user has another score.
    Distinct,
}

pub(crate) fn id(shape: IdShape, user: u64) -> String {
    let mut random = Random(user ^ 0x5EED);
    match shape {
        IdShape::Numbered => format!("user-{user:019}"),
        IdShape::Uuid => {
            let (high, low) = (random.next(), random.next());
            format!(
                "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
                high >> 32,
                high >> 16 & 0xFFFF,
                high & 0xFFF,
                low >> 48 & 0x3FFF | 0x8000,
                low & 0xFFFF_FFFF_FFFF
            )
        }
        IdShape::Random => {
            const SYMBOLS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
            (0..24).map(|_| char::from(SYMBOLS[random.below(62) as usize])).collect()
        }
    }
}

pub(crate) fn score(scores: Scores, user: u64, users: u64) -> i64 {
    match scores {
        Scores::Skewed => {
            let mut random = Random(user.wrapping_mul(0x2545_F491_4F6C_DD1D));
            let normal = (-2.0 * random.unit().ln()).sqrt() * (std::f64::consts::TAU * random.unit()).cos();
            (17.5f64.ln() + 1.865 * normal).exp() as i64
        }
        // A permutation of 0..2^k, k such that all users fit; then spread a little.
        Scores::Distinct => {
            let size = users.next_power_of_two();
            (user.wrapping_mul(0x9E37_79B9_7F4A_7C15) % size) as i64 * 7
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_as_skewed_as_said() {
        let mut scores: Vec<i64> = (0..100_000).map(|user| score(Scores::Skewed, user, 100_000)).collect();
        scores.sort_unstable();
        assert!((15..=19).contains(&scores[50_000]), "the median is {}", scores[50_000]);
        assert!((1_150..=1_450).contains(&scores[99_000]), "the 99th percentile is {}", scores[99_000]);
    }

    #[test]
    fn distinct_scores_are_distinct() {
        let mut scores: Vec<i64> = (0..100_000).map(|user| score(Scores::Distinct, user, 100_000)).collect();
        scores.sort_unstable();
        scores.dedup();
        assert_eq!(scores.len(), 100_000);
    }

    #[test]
    fn ids_have_the_shape_and_length_said() {
        assert_eq!(id(IdShape::Numbered, 12_345), "user-0000000000000012345");
        assert_eq!(id(IdShape::Uuid, 7).len(), 36);
        assert_eq!(id(IdShape::Random, 7).len(), 24);
    }
}
