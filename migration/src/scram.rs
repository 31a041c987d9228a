//! SCRAM-SHA-256 verifiers (RFC 5802, RFC 7677) made here, so that no password ever stands in a SQL statement.

use base64::{Engine, engine::general_purpose::STANDARD};
use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};

/// PostgreSQL's own default (`scram_iterations`).
pub const ITERATIONS: u32 = 4096;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// libpq applies SASLprep and sqlx does not; on printable ASCII both agree.
    #[error("a database password must be 1 to 128 printable ASCII characters")]
    Password,
    #[error("the system has no source of random bytes")]
    Random,
}

fn hmac(key: &[u8], text: &[u8]) -> [u8; 32] {
    // HMAC takes a key of any length.
    Hmac::<Sha256>::new_from_slice(key).map_or([0; 32], |mut mac| {
        mac.update(text);
        mac.finalize().into_bytes().into()
    })
}

/// The verifier that PostgreSQL stores: `SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>`.
///
/// # Errors
/// `Password` when the password is empty, too long or not printable ASCII.
pub fn verifier(password: &str, salt: &[u8], iterations: u32) -> Result<String, Error> {
    let printable = (1..=128).contains(&password.len()) && password.bytes().all(|c| (0x20..0x7f).contains(&c));
    if !printable {
        return Err(Error::Password);
    }
    let mut salted = [0_u8; 32];
    pbkdf2::pbkdf2::<Hmac<Sha256>>(password.as_bytes(), salt, iterations, &mut salted).map_err(|_| Error::Password)?;
    let stored_key: [u8; 32] = Sha256::digest(hmac(&salted, b"Client Key")).into();
    let server_key = hmac(&salted, b"Server Key");
    let (salt, stored, server) = (STANDARD.encode(salt), STANDARD.encode(stored_key), STANDARD.encode(server_key));
    Ok(format!("SCRAM-SHA-256${iterations}:{salt}${stored}:{server}"))
}

/// A verifier with a fresh random salt.
///
/// # Errors
/// See [`verifier`]; `Random` when the system gives no random bytes.
pub fn fresh_verifier(password: &str) -> Result<String, Error> {
    let mut salt = [0_u8; 16];
    getrandom::fill(&mut salt).map_err(|_| Error::Random)?;
    verifier(password, &salt, ITERATIONS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7677 section 3: user "user", password "pencil"; the keys follow from its client and server proofs.
    #[test]
    fn the_rfc_7677_example_has_its_server_signature() {
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let text = verifier("pencil", &salt, 4096).unwrap();
        let server_key = STANDARD.decode(text.rsplit(':').next().unwrap()).unwrap();
        let auth = "n=user,r=rOprNGfwEbeRWgbNEkqO,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        assert_eq!(STANDARD.encode(hmac(&server_key, auth.as_bytes())), "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
    }

    #[test]
    fn a_password_outside_printable_ascii_is_refused() {
        for password in ["", "pässword", "tab\there", &"x".repeat(129)] {
            assert_eq!(fresh_verifier(password), Err(Error::Password), "{password:?}");
        }
    }

    #[test]
    fn two_verifiers_of_one_password_differ_by_their_salt() {
        assert_ne!(fresh_verifier("pencil").unwrap(), fresh_verifier("pencil").unwrap());
    }
}
