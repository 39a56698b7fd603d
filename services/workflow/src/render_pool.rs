//! Renders templates on threads of their own, a few at a time: each may compute for seconds, and reads of the store use the
//! same threads.

use std::sync::Arc;
use std::time::Duration;

use tinwright::status;
use tokio::sync::Semaphore;
use tonic::Status;

/// The number of templates that are rendered at a time.
const MAX_RENDERINGS: usize = 4;
/// The longest time that a rendering waits to begin.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// Permits to render.
#[derive(Clone, Debug)]
pub struct RenderPool(Arc<Semaphore>);

impl Default for RenderPool {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_RENDERINGS)))
    }
}

impl RenderPool {
    /// Runs `render`. Fails with RESOURCE_EXHAUSTED if too many others take too long.
    pub async fn run<T: Send + 'static>(
        &self,
        render: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Status> {
        let permit = tokio::time::timeout(MAX_WAIT, self.0.clone().acquire_owned()).await;
        let Ok(Ok(permit)) = permit else {
            return Err(status::overloaded("too many templates are being rendered", MAX_WAIT));
        };
        let rendering = tokio::task::spawn_blocking(move || {
            // Held until the thread is free, also if the caller is gone by then.
            let _permit = permit;
            render()
        });
        rendering.await.map_err(|_| Status::internal("rendering was aborted"))
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::{Mutex, mpsc};

    use futures_util::FutureExt as _;
    use tonic::Code;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_rendering_is_refused_while_others_run_too_long_even_if_their_callers_are_gone() {
        let pool = RenderPool::default();
        let (end, ended) = mpsc::channel::<()>();
        let ended = Arc::new(Mutex::new(ended));
        for _ in 0..MAX_RENDERINGS {
            let ended = ended.clone();
            let abandoned = pool.run(move || ended.lock().unwrap().recv().is_ok());
            assert!(abandoned.now_or_never().is_none());
        }
        let mut waiting = pin!(pool.run(|| 7));
        assert!(waiting.as_mut().now_or_never().is_none());
        tokio::time::advance(MAX_WAIT).await;
        let refused = waiting.await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted);
        assert_eq!(status::retry_delay(&refused), Some(MAX_WAIT));
        drop(end);
        assert_eq!(pool.run(|| 7).await.unwrap(), 7);
    }
}
