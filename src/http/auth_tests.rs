use super::*;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// Keys of a store with one live key, and how often it was read.
fn keys(id: String, secret_hash: Hash) -> (Keys, Arc<AtomicUsize>) {
    let reads = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&reads);
    let lookup = Door::new(move |asked: String| {
        counted.fetch_add(1, SeqCst);
        let key = (asked == id).then(|| LiveKey { project: "alpha".into(), secret_hash });
        async move {
            tokio::task::yield_now().await;
            Ok(key)
        }
    });
    (Keys::new(lookup), reads)
}

#[tokio::test]
async fn a_live_key_names_its_project_and_is_read_once_in_a_while() {
    let key = api_key::mint("live").unwrap();
    let (keys, reads) = keys(key.id.clone(), key.hash);
    let asks = futures::future::join_all((0..20).map(|_| keys.project(&key.plaintext))).await;
    assert!(asks.into_iter().all(|project| project.unwrap() == "alpha"));
    assert_eq!(reads.load(SeqCst), 1);
    assert_eq!(keys.project_at(&key.plaintext, Instant::now() + KNOWN_FOR).await.unwrap(), "alpha");
    assert_eq!(reads.load(SeqCst), 2);
}

#[tokio::test]
async fn a_wrong_secret_and_an_unknown_id_get_the_same_answer() {
    let (live, stranger) = (api_key::mint("live").unwrap(), api_key::mint("live").unwrap());
    let (mine, _) = keys(live.id.clone(), stranger.hash);
    let wrong = mine.project(&live.plaintext).await.unwrap_err();
    let (mine, reads) = keys(live.id.clone(), live.hash);
    let unknown = mine.project(&stranger.plaintext).await.unwrap_err();
    let malformed = mine.project("holdfast_live_x").await.unwrap_err();
    assert_eq!(wrong.body("r"), unknown.body("r"));
    assert_eq!(wrong.body("r"), malformed.body("r"));
    mine.project(&stranger.plaintext).await.unwrap_err();
    assert_eq!(reads.load(SeqCst), 1, "an unknown key is remembered for a moment");
    mine.project_at(&stranger.plaintext, Instant::now() + UNKNOWN_FOR).await.unwrap_err();
    assert_eq!(reads.load(SeqCst), 2);
}

#[tokio::test]
async fn the_memory_stays_bounded_and_keeps_real_keys_before_made_up_ones() {
    let key = api_key::mint("live").unwrap();
    let (keys, reads) = keys(key.id.clone(), key.hash);
    keys.project(&key.plaintext).await.unwrap();
    for number in 0..REMEMBERED + 10 {
        keys.remember(format!("made-up-{number}"), None, Instant::now());
    }
    assert!(keys.0.memory.read().unwrap().len() <= REMEMBERED);
    keys.project(&key.plaintext).await.unwrap();
    assert_eq!(reads.load(SeqCst), 1);
}

#[tokio::test]
async fn a_database_that_is_away_is_no_wrong_key() {
    let key = api_key::mint("live").unwrap();
    let keys = Keys::new(Door::new(|_| async { Err(store::Error::Unavailable("away".into())) }));
    assert_eq!(keys.project(&key.plaintext).await.unwrap_err().kind(), Kind::Unavailable);
}

#[test]
fn the_operators_token_is_needed_and_nothing_opens_without_one() {
    let headers = |value: &str| {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, value.parse().unwrap());
        headers
    };
    let token = AdminToken::new(Some(&SecretString::from("right")));
    assert!(token.check(&headers("Bearer right")).is_ok());
    assert!(token.check(&headers("bearer right")).is_ok());
    for value in ["Bearer wrong", "Bearer", "right", "Basic right", "Bearer right2"] {
        assert_eq!(token.check(&headers(value)).unwrap_err().kind(), Kind::Unauthorized, "{value}");
    }
    assert_eq!(token.check(&HeaderMap::new()).unwrap_err().kind(), Kind::Unauthorized);
    assert_eq!(AdminToken::new(None).check(&headers("Bearer right")).unwrap_err().kind(), Kind::Forbidden);
}
