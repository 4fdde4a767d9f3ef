//! The Arrow Flight service of an executor: other executors and clients fetch shuffle files and
//! results from it. It reads what is sent as it is on disk, which is Ballista's default, with
//! ringway; everything else is Ballista's service.

use crate::shuffle_file::Part;
use arrow_flight::flight_service_server::{FlightService, FlightServiceServer};
use arrow_flight::{
    Action, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo, HandshakeRequest, PollInfo,
    SchemaResult, Ticket,
};
use ballista_core::error::BallistaError;
use ballista_core::execution_plans::sort_shuffle::get_index_path;
use ballista_core::execution_plans::{create_shuffle_path, range_shuffle};
use ballista_core::serde::decode_protobuf;
use ballista_core::serde::scheduler::{Action as Fetch, ShuffleFileKind, ShuffleLayout};
use ballista_core::utils::{create_grpc_server, create_grpc_server_incoming};
use ballista_executor::ArrowFlightServerProvider;
use ballista_executor::flight_service::BallistaFlightService;
use futures::future::TryFutureExt;
use futures::stream::{self, StreamExt, TryStreamExt};
use ringway::Engine;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use tonic::{Request, Response, Status, Streaming};

/// The action that sends the bytes of a file.
const SEND_BYTES: &str = "IO_BLOCK_TRANSPORT";

/// Makes the service that an executor runs. The sizes are the most bytes of a message that it sends
/// and accepts.
pub(crate) fn provider(
    engine: &Engine,
    max_sent: usize,
    max_accepted: usize,
) -> Arc<ArrowFlightServerProvider> {
    let engine = engine.clone();
    Arc::new(move |work_dir, address, mut shutdown, config| {
        let service = RingwayFlightService::new(work_dir, &engine);
        let served = async move {
            let incoming = create_grpc_server_incoming(address, &config)?;
            let service = FlightServiceServer::new(service)
                .max_encoding_message_size(max_sent)
                .max_decoding_message_size(max_accepted);
            create_grpc_server(&config)
                .add_service(service)
                .serve_with_incoming_shutdown(incoming, async move { shutdown.recv().await })
                .await
                .map_err(BallistaError::TonicError)
        };
        // The executor ends then, and does not say why.
        let failed = move |error: &_| log::error!("the flight service at {address}: {error}");
        tokio::spawn(served.inspect_err(failed))
    })
}

/// Ballista's service, except for the action [`SEND_BYTES`].
#[derive(Clone)]
pub(crate) struct RingwayFlightService {
    ballista: BallistaFlightService,
    work_dir: String,
    engine: Engine,
}

impl RingwayFlightService {
    pub(crate) fn new(work_dir: String, engine: &Engine) -> Self {
        let ballista = BallistaFlightService::new(work_dir.clone());
        Self { ballista, work_dir, engine: engine.clone() }
    }

    /// Opens what is asked for: the parts whose bytes are sent, in order.
    async fn open(&self, fetch: &Fetch) -> Result<Vec<Part>, Status> {
        let Fetch::FetchPartition {
            job_id,
            stage_id,
            partition_id,
            file_id,
            layout,
            file_kind,
            byte_ranges,
            ..
        } = fetch;
        let is_sorted = matches!(layout, ShuffleLayout::Sort);
        let data = create_shuffle_path(
            &self.work_dir,
            job_id,
            *stage_id,
            *partition_id,
            *file_id,
            is_sorted,
        );
        let data = data.map_err(|error| Status::invalid_argument(error.to_string()))?;
        let parts = match file_kind {
            ShuffleFileKind::Data if byte_ranges.is_empty() && is_sorted => {
                // The header has the schema, which the receiver needs even if there are no rows.
                let parts = Part::indexed(&self.engine, &data, *partition_id).await;
                parts.map(|(header, part)| vec![header, part])
            }
            kind => {
                let path = file_of(data, *kind, is_sorted);
                if byte_ranges.is_empty() {
                    Part::whole(&self.engine, &path).await.map(|part| vec![part])
                } else {
                    let ranges = byte_ranges.iter().map(|range| (range.offset, range.length));
                    Part::ranges(&self.engine, &path, ranges).await
                }
            }
        };
        parts.map_err(|error| status(&error))
    }
}

/// The data file, or the index next to it.
fn file_of(data: PathBuf, kind: ShuffleFileKind, is_sorted: bool) -> PathBuf {
    match kind {
        ShuffleFileKind::Data => data,
        ShuffleFileKind::Index if is_sorted => get_index_path(&data),
        ShuffleFileKind::Index => range_shuffle::index_path(&data),
    }
}

fn status(error: &io::Error) -> Status {
    let text = error.to_string();
    match error.kind() {
        io::ErrorKind::NotFound => Status::not_found(text),
        io::ErrorKind::UnexpectedEof => Status::out_of_range(text),
        _ => Status::internal(text),
    }
}

/// What a client asks for. A job is a folder in the work directory; Ballista would also take the
/// path of a folder elsewhere.
fn requested(bytes: &[u8]) -> Result<Fetch, Status> {
    let fetch = decode_protobuf(bytes);
    let fetch = fetch.map_err(|error| Status::invalid_argument(error.to_string()))?;
    let Fetch::FetchPartition { job_id, .. } = &fetch;
    let mut components = Path::new(job_id.as_str()).components();
    match (components.next(), components.next()) {
        (Some(Component::Normal(_)), None) => Ok(fetch),
        _ => Err(Status::invalid_argument(format!("{:?} is no name of a job", job_id.as_str()))),
    }
}

type Ballista = BallistaFlightService;

#[tonic::async_trait]
impl FlightService for RingwayFlightService {
    type DoActionStream = <Ballista as FlightService>::DoActionStream;
    type DoExchangeStream = <Ballista as FlightService>::DoExchangeStream;
    type DoGetStream = <Ballista as FlightService>::DoGetStream;
    type DoPutStream = <Ballista as FlightService>::DoPutStream;
    type HandshakeStream = <Ballista as FlightService>::HandshakeStream;
    type ListActionsStream = <Ballista as FlightService>::ListActionsStream;
    type ListFlightsStream = <Ballista as FlightService>::ListFlightsStream;

    async fn do_action(
        &self,
        request: Request<Action>,
    ) -> Result<Response<Self::DoActionStream>, Status> {
        if request.get_ref().r#type != SEND_BYTES {
            return self.ballista.do_action(request).await;
        }
        let parts = self.open(&requested(&request.get_ref().body)?).await?;
        let blocks = stream::iter(parts).flat_map(|part| part.blocks().boxed());
        let bodies =
            blocks.map_ok(|body| arrow_flight::Result { body }).map_err(|error| status(&error));
        Ok(Response::new(bodies.boxed()))
    }

    async fn do_get(
        &self,
        request: Request<Ticket>,
    ) -> Result<Response<Self::DoGetStream>, Status> {
        requested(&request.get_ref().ticket)?;
        self.ballista.do_get(request).await
    }

    async fn do_put(
        &self,
        request: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoPutStream>, Status> {
        self.ballista.do_put(request).await
    }

    async fn do_exchange(
        &self,
        request: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoExchangeStream>, Status> {
        self.ballista.do_exchange(request).await
    }

    async fn handshake(
        &self,
        request: Request<Streaming<HandshakeRequest>>,
    ) -> Result<Response<Self::HandshakeStream>, Status> {
        self.ballista.handshake(request).await
    }

    async fn list_flights(
        &self,
        request: Request<Criteria>,
    ) -> Result<Response<Self::ListFlightsStream>, Status> {
        self.ballista.list_flights(request).await
    }

    async fn get_flight_info(
        &self,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        self.ballista.get_flight_info(request).await
    }

    async fn poll_flight_info(
        &self,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<PollInfo>, Status> {
        self.ballista.poll_flight_info(request).await
    }

    async fn get_schema(
        &self,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<SchemaResult>, Status> {
        self.ballista.get_schema(request).await
    }

    async fn list_actions(
        &self,
        request: Request<Empty>,
    ) -> Result<Response<Self::ListActionsStream>, Status> {
        self.ballista.list_actions(request).await
    }
}
