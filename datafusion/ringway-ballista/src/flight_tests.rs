//! Tests of what is sent between executors: the same as by Ballista's service, but no other files;
//! nothing is in flight for a reader that has gone; errors name the executor that sent too little.

use crate::flight::RingwayFlightService;
use crate::shuffle_reader::ShuffleReader;
use crate::shuffle_tests::{Job, PARTITIONS, STAGE, WRITER, after_first_batch, wait_for};
use arrow_flight::flight_service_server::{FlightService, FlightServiceServer};
use ballista_core::client::BallistaClient;
use ballista_core::error::{BallistaError, Result};
use ballista_core::execution_plans::ShuffleReaderExec;
use ballista_core::execution_plans::sort_shuffle::get_index_path;
use ballista_core::serde::scheduler::{ByteRange, PartitionLocation, ShuffleFileKind};
use ballista_core::utils::{
    GrpcServerConfig, collect_stream, create_grpc_server, create_grpc_server_incoming,
};
use ballista_executor::flight_service::BallistaFlightService;
use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch};
use datafusion::arrow::ipc::writer::StreamWriter;
use datafusion::error::DataFusionError;
use datafusion::physical_plan::Partitioning;
use datafusion::prelude::SessionContext;
use futures::StreamExt;
use ringway::Engine;
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Runs a service to the end of the test, and returns its port.
fn serve(service: impl FlightService) -> u16 {
    let config = GrpcServerConfig::default();
    let incoming = create_grpc_server_incoming("127.0.0.1:0".parse().unwrap(), &config).unwrap();
    let port = incoming.local_addr().unwrap().port();
    let server = create_grpc_server(&config).add_service(FlightServiceServer::new(service));
    tokio::spawn(server.serve_with_incoming(incoming));
    port
}

async fn client(port: u16) -> BallistaClient {
    let connected = BallistaClient::try_new("127.0.0.1", port, 16 << 20, false, None, 1, 1, 0, 0);
    connected.await.unwrap()
}

/// What a client receives for a location.
async fn fetch(
    client: &mut BallistaClient,
    location: &PartitionLocation,
    by_flight: bool,
) -> Result<Vec<RecordBatch>> {
    let PartitionLocation { partition_id, file_id, .. } = location;
    let layout = location.layout();
    let fetched = client.fetch_partition("writer", partition_id, *file_id, layout, by_flight);
    collect_stream(&mut fetched.await?).await
}

/// What a client receives for ranges of the data file of a location.
async fn fetch_ranges(
    client: &mut BallistaClient,
    location: &PartitionLocation,
    ranges: &[(u64, u64)],
) -> Result<Vec<RecordBatch>> {
    let PartitionLocation { partition_id, file_id, .. } = location;
    let ranges = ranges.iter().map(|&(offset, length)| ByteRange { offset, length }).collect();
    let (layout, kind) = (location.layout(), ShuffleFileKind::Data);
    let fetched =
        client.fetch_byte_ranges("writer", partition_id, *file_id, layout, kind, ranges, None);
    collect_stream(&mut fetched.await?).await
}

#[tokio::test]
async fn clients_receive_what_ballista_sends() {
    let engine = Engine::global().unwrap();
    for (is_sorted, codec) in [(true, "lz4"), (false, "lz4"), (false, "none")] {
        let job = Job::run(engine, is_sorted, codec).await;
        let work_dir = job.work_dir().to_owned();
        let ours = serve(RingwayFlightService::new(work_dir.clone(), engine));
        let ballistas = serve(BallistaFlightService::new(work_dir));
        let (mut ours, mut ballistas) = (client(ours).await, client(ballistas).await);
        for (partition, locations) in job.locations().iter().enumerate() {
            for by_flight in [false, true] {
                let received = fetch(&mut ours, &locations[0], by_flight).await.unwrap();
                assert!(!received.is_empty());
                let expected = fetch(&mut ballistas, &locations[0], by_flight).await.unwrap();
                assert_eq!(received, expected, "sorted {is_sorted}, {codec}");
            }
            if !is_sorted {
                let len = fs::metadata(job.data(partition)).unwrap().len();
                let ranges = [(0, 100), (100, 0), (100, len)];
                let received = fetch_ranges(&mut ours, &locations[0], &ranges).await.unwrap();
                assert!(!received.is_empty());
                let expected = fetch_ranges(&mut ballistas, &locations[0], &ranges).await.unwrap();
                assert_eq!(received, expected, "{codec}");
                let error = fetch_ranges(&mut ours, &locations[0], &[(len, 1)]).await;
                let error = error.unwrap_err().to_string();
                assert!(error.contains("no byte at"), "{error}");
            }
        }
        fs::remove_file(job.data(1)).unwrap();
        let error = fetch(&mut ours, &job.locations()[1][0], false).await.unwrap_err();
        assert!(matches!(error, BallistaError::FetchFailed(..)), "{error:?}");
        assert!(error.to_string().contains(job.data(1).to_str().unwrap()), "{error}");
    }
}

/// A client may name jobs, not paths.
#[tokio::test]
async fn files_outside_of_the_work_directory_are_refused() {
    let engine = Engine::global().unwrap();
    let job = Job::run(engine, false, "lz4").await;
    let work_dir = tempfile::tempdir_in(job.work_dir()).unwrap();
    let port = serve(RingwayFlightService::new(work_dir.path().to_str().unwrap().into(), engine));
    let mut client = client(port).await;
    let inside = Path::new(job.work_dir()).join("job");
    let mut location = job.locations()[0][0].clone();
    for name in ["../job", inside.to_str().unwrap(), "..", ".", "", "a/../../job", "./../job"] {
        location.partition_id.job_id = name.into();
        for by_flight in [false, true] {
            let error = fetch(&mut client, &location, by_flight).await.unwrap_err().to_string();
            assert!(error.contains("is no name of a job"), "{name:?}: {error}");
        }
    }
}

/// Reading stops with a client that has received a part.
#[tokio::test]
async fn nothing_is_in_flight_for_a_client_that_is_gone() {
    let engine = Engine::builder().build().unwrap();
    let job = Job::run(&engine, false, "none").await;
    let values: ArrayRef = Arc::new(Int64Array::from_iter_values(0..1 << 17));
    let batch = RecordBatch::try_from_iter([("value", values)]).unwrap();
    let file = File::create(job.data(0)).unwrap();
    let mut writer = StreamWriter::try_new_buffered(file, &batch.schema()).unwrap();
    for _ in 0..64 {
        writer.write(&batch).unwrap();
    }
    writer.finish().unwrap();
    let mut client = client(serve(RingwayFlightService::new(job.work_dir().into(), &engine))).await;
    let location = &job.locations()[0][0];
    let PartitionLocation { partition_id, file_id, .. } = location;
    let layout = location.layout();
    let fetched = client.fetch_partition("writer", partition_id, *file_id, layout, false);
    let mut batches = fetched.await.unwrap();
    assert_eq!(batches.next().await.unwrap().unwrap(), batch);
    // Of a file that is cached, nothing may be read ahead.
    let read_ahead = async {
        while engine.stats().pool.in_use == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let _ = tokio::time::timeout(Duration::from_secs(1), read_ahead).await;
    drop((batches, client));
    let is_idle = || {
        let stats = engine.stats();
        stats.counts.in_flight == 0 && stats.pool.in_use == 0
    };
    wait_for("the engine to be idle", is_idle).await;
}

/// Files that end between two batches, which no service notices.
#[tokio::test]
async fn an_executor_that_sends_too_little_is_named() {
    let engine = Engine::global().unwrap();
    let mut locations = Vec::new();
    let mut jobs = Vec::new();
    for (task, executor) in ["first", "second", "third"].into_iter().enumerate() {
        let job = Job::run(engine, false, "lz4").await;
        let mut location = job.locations()[1][0].clone();
        location.map_partition_id = task;
        location.executor_meta.id = executor.to_owned();
        location.executor_meta.port = serve(BallistaFlightService::new(job.work_dir().to_owned()));
        locations.push(location);
        jobs.push(job);
    }
    let path = jobs[1].data(1);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..after_first_batch(&bytes)]).unwrap();

    let forced =
        jobs[1].session.copied_config().set_bool("ballista.shuffle.force_remote_read", true);
    let forced = SessionContext::new_with_config(forced);
    let elsewhere = tempfile::tempdir().unwrap();
    let elsewhere = elsewhere.path().to_str().unwrap();
    // In the last case, the file is also in the reader's own directory.
    for (session, work_dir) in
        [(&jobs[0].session, elsewhere), (&forced, elsewhere), (&forced, jobs[1].work_dir())]
    {
        let reader = ShuffleReaderExec::try_new(
            STAGE,
            vec![locations.clone()],
            jobs[0].schema.clone(),
            Partitioning::UnknownPartitioning(PARTITIONS),
        );
        let reader = ShuffleReader::new(&reader.unwrap(), engine, "reader", work_dir, None);
        let error = jobs[0].keys_in(session, &reader, 0).await.unwrap_err();
        let failure = match &error {
            DataFusionError::External(error) => error.downcast_ref::<BallistaError>(),
            _ => None,
        };
        match failure {
            Some(BallistaError::FetchFailed(executor, STAGE, 1, reason)) => {
                assert_eq!(executor, "second", "{reason}");
                assert!(reason.contains("400 rows instead of 1200"), "{reason}");
            }
            _ => panic!("{error:?}"),
        }
    }
}

/// A stage that runs again may give the same numbers to other tasks on other executors.
#[tokio::test]
async fn a_file_with_the_name_of_another_executors_is_not_read() {
    let engine = Engine::global().unwrap();
    for is_sorted in [true, false] {
        let job = Job::run(engine, is_sorted, "lz4").await;
        let service = RingwayFlightService::new(job.work_dir().to_owned(), engine);
        let mut locations = job.locations();
        locations[0][0].executor_meta.port = serve(service);
        let first_attempt = Job::run(engine, is_sorted, "lz4").await;
        if is_sorted {
            // As a task leaves it that fails before it writes the index.
            fs::remove_file(get_index_path(&first_attempt.data(0))).unwrap();
        } else {
            // As many rows, but others.
            fs::copy(job.data(1), first_attempt.data(0)).unwrap();
        }
        let partitioning = Partitioning::UnknownPartitioning(PARTITIONS);
        let original =
            ShuffleReaderExec::try_new(STAGE, locations, job.schema.clone(), partitioning).unwrap();
        let read = async |executor, work_dir| {
            let reader = ShuffleReader::new(&original, engine, executor, work_dir, None);
            job.keys(&reader, 0).await.unwrap()
        };
        let wanted = read(WRITER, job.work_dir()).await;
        assert!(!wanted.is_empty());
        assert_eq!(read("reader", first_attempt.work_dir()).await, wanted, "sorted {is_sorted}");
    }
}
