//! Owns the shape in which handlers reach the rest of the program: a question in, an answer later. `app` fills each door with a
//! handle, a read or an operator act, tests fill it with a closure. Never does anything itself.

use futures::future::BoxFuture;
use std::fmt;
use std::sync::Arc;

type Answer<I, O> = dyn Fn(I) -> BoxFuture<'static, O> + Send + Sync;

/// Cheap to clone, usable from any thread.
pub struct Door<I, O>(Arc<Answer<I, O>>);

impl<I, O> Door<I, O> {
    pub fn new<F: Future<Output = O> + Send + 'static>(answer: impl Fn(I) -> F + Send + Sync + 'static) -> Self {
        Self(Arc::new(move |question| Box::pin(answer(question))))
    }

    pub async fn ask(&self, question: I) -> O {
        (self.0)(question).await
    }
}

impl<I, O> Clone for Door<I, O> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<I, O> fmt::Debug for Door<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Door")
    }
}
