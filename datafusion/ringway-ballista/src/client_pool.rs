//! Connections to other executors that are used again. Ballista's own pool cannot be named outside
//! of its crate.

use ballista_core::client::BallistaClient;
use ballista_core::client_pool::{BallistaClientPool, PooledClient};
use ballista_core::error::Result;
use ballista_core::extension::BallistaConfigGrpcEndpoint;
use ballista_core::utils::GrpcClientConfig;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Keeps connections that are not used for a while. It has no task of its own: connections that
/// have been idle for too long are closed when the next one is asked for or returned.
pub(crate) struct ClientPool {
    idle: Arc<Mutex<Idle>>,
}

type Key = (String, u16, GrpcClientConfig);

struct Idle {
    timeout: Duration,
    /// With the moment since when each is idle; the latest is last.
    clients: HashMap<Key, Vec<(BallistaClient, Instant)>>,
}

impl Idle {
    fn evict(&mut self) {
        let timeout = self.timeout;
        self.clients.retain(|_, clients| {
            clients.retain(|(_, since)| since.elapsed() < timeout);
            !clients.is_empty()
        });
    }
}

impl ClientPool {
    pub(crate) fn new(timeout: Duration) -> Self {
        let idle = Idle { timeout, clients: HashMap::new() };
        Self { idle: Arc::new(Mutex::new(idle)) }
    }
}

fn lock(idle: &Mutex<Idle>) -> MutexGuard<'_, Idle> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for ClientPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientPool").finish_non_exhaustive()
    }
}

#[async_trait::async_trait]
impl BallistaClientPool for ClientPool {
    async fn acquire(
        &self,
        host: &str,
        port: u16,
        config: &GrpcClientConfig,
        customize_endpoint: Option<Arc<BallistaConfigGrpcEndpoint>>,
    ) -> Result<PooledClient> {
        let key = (host.to_owned(), port, config.clone());
        let found = {
            let mut idle = lock(&self.idle);
            idle.evict();
            idle.clients.get_mut(&key).and_then(Vec::pop)
        };
        let client = match found {
            Some((client, _)) => client,
            None => {
                BallistaClient::try_new(
                    host,
                    port,
                    config.max_message_size,
                    config.use_tls,
                    customize_endpoint,
                    config.io_retries_times,
                    config.io_retry_wait_time_ms,
                    config.initial_connection_window_size,
                    config.initial_stream_window_size,
                )
                .await?
            }
        };
        let idle = self.idle.clone();
        let give_back = move |client| {
            let mut idle = lock(&idle);
            idle.evict();
            idle.clients.entry(key).or_default().push((client, Instant::now()));
        };
        Ok(PooledClient::new(client, Box::new(give_back)))
    }

    async fn evict_idle(&self) {
        lock(&self.idle).evict();
    }
}
