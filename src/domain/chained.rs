//! The hash that chains the log of operators: SHA-256 over the parts of a row, each with its length in bytes before it. Pure; Postgres computes
//! the same when it writes a row (`holdfast.chained`), and whoever has kept the hash of a row can tell whether anything up to it was changed.

use entity::values::Hash;
use sha2::{Digest, Sha256};

/// The one before the first.
pub const NONE: Hash = Hash([0; 32]);

/// Of the parts of a row; None stands for a part that is not there.
#[must_use]
pub fn hash(parts: &[Option<&str>]) -> Hash {
    let mut digest = Sha256::new();
    for part in parts {
        match part {
            Some(text) => digest.update(format!("{}:{text}", text.len())),
            None => digest.update("-"),
        }
    }
    Hash(digest.finalize().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_can_move_from_a_part_to_its_neighbour() {
        let all = [
            hash(&[Some("ab"), Some("c")]),
            hash(&[Some("a"), Some("bc")]),
            hash(&[Some("abc"), None]),
            hash(&[Some("abc"), Some("")]),
            hash(&[None, Some("abc")]),
            hash(&[Some("ab"), Some("c"), None]),
        ];
        let different: std::collections::HashSet<_> = all.iter().map(|hash| hash.0).collect();
        assert_eq!(different.len(), all.len());
    }

    #[test]
    fn it_is_the_sha_256_of_parts_with_their_lengths() {
        assert_eq!(hash(&[Some("ä"), None]), Hash(Sha256::digest("2:ä-").into()));
    }
}
