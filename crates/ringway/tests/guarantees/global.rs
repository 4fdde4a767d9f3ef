//! The global engine is built once. Before its first use, the program and the environment configure
//! it.

use crate::common::process::in_child;
use crate::common::watchdog::Watchdog;
use crate::common::{in_fork, poll_once, resident};
use futures::executor::block_on;
use ringway::fs::File;
use ringway::{BackendKind, Engine, EngineBuilder, ForcedBy, Reaping};
use std::io;
use std::sync::Barrier;

fn threads() -> EngineBuilder {
    Engine::builder().backend(BackendKind::Threads).shards(1)
}

fn kind<T>(result: io::Result<T>) -> io::ErrorKind {
    result.map(drop).expect_err("an error").kind()
}

/// Runs `body` in a process of its own with these variables in its environment.
fn in_child_with(test: &str, variables: &[(&str, &str)], body: impl FnOnce()) {
    let prepare = |command: &mut std::process::Command| {
        for name in ["RINGWAY_BACKEND", "RINGWAY_IN_FLIGHT", "RINGWAY_POOL"] {
            command.env_remove(name);
        }
        command.envs(variables.iter().copied());
    };
    in_child(&format!("global::{test}"), prepare, body);
}

#[test]
fn an_installed_engine_is_the_global_one() {
    in_child_with("an_installed_engine_is_the_global_one", &[], || {
        let _watch = Watchdog::new("an_installed_engine_is_the_global_one");
        // A failed build installs nothing.
        assert_eq!(kind(threads().in_flight(0).install_global()), io::ErrorKind::InvalidInput);
        let installed = threads().install_global().unwrap();
        assert_eq!(installed.backend(), BackendKind::Threads);
        let text = installed.explain().to_string();
        assert!(text.starts_with("backend threads (forced by the option backend)"), "{text}");
        assert!(std::ptr::eq(installed, Engine::global().unwrap()));
        let before = installed.stats().counts.pushed;
        block_on(ringway::fs::read("/etc/passwd")).unwrap();
        assert!(installed.stats().counts.pushed > before);
        assert_eq!(kind(threads().install_global()), io::ErrorKind::AlreadyExists);
        assert!(std::ptr::eq(installed, Engine::global().unwrap()));
    });
}

#[test]
fn a_used_global_engine_is_not_replaced() {
    in_child_with("a_used_global_engine_is_not_replaced", &[], || {
        let global = Engine::global().unwrap();
        let error = threads().install_global().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert!(error.to_string().contains("before anything uses it"), "{error}");
        assert!(std::ptr::eq(global, Engine::global().unwrap()));
    });
}

#[test]
fn one_of_many_threads_installs_it() {
    in_child_with("one_of_many_threads_installs_it", &[], || {
        let _watch = Watchdog::new("one_of_many_threads_installs_it");
        const MANY: usize = 8;
        let barrier = Barrier::new(MANY);
        let install = || {
            barrier.wait();
            let installed = threads().install_global();
            (installed.map_err(|error| error.kind()), Engine::global().unwrap())
        };
        let results: Vec<_> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..MANY).map(|_| scope.spawn(install)).collect();
            all.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(results.iter().filter(|(installed, _)| installed.is_ok()).count(), 1);
        for (installed, global) in &results {
            assert!(std::ptr::eq(*global, results[0].1));
            match installed {
                Ok(installed) => assert!(std::ptr::eq(*installed, *global)),
                Err(kind) => assert_eq!(*kind, io::ErrorKind::AlreadyExists),
            }
        }
    });
}

#[test]
fn a_forked_child_does_not_replace_its_parents_engine() {
    in_child_with("a_forked_child_does_not_replace_its_parents_engine", &[], || {
        // While there is no global engine, each process may install its own.
        let status = in_fork(|| {
            let installed = threads().install_global().unwrap();
            assert!(std::ptr::eq(installed, Engine::global().unwrap()));
            block_on(ringway::fs::metadata("/")).unwrap();
        });
        assert_eq!(status, 0);
        threads().install_global().unwrap();
        let status = in_fork(|| {
            assert_eq!(threads().install_global().unwrap_err().raw_os_error(), Some(libc::ECHILD));
            assert_eq!(Engine::global().unwrap_err().raw_os_error(), Some(libc::ECHILD));
        });
        assert_eq!(status, 0);
        block_on(ringway::fs::metadata("/")).unwrap();
    });
}

/// The size of the largest batch that an engine makes of forty reads.
fn largest_batch(builder: EngineBuilder) -> u64 {
    let engine = builder.reaping(Reaping::Manual).try_cached(false).build().unwrap();
    let file = tempfile::tempfile().unwrap();
    file.set_len(40 << 20).unwrap();
    let file = File::from_fd(file.into(), &engine);
    let ranges: Vec<_> = (0..40).map(|at| at << 20..(at << 20) + 4096).collect();
    let mut reads = Box::pin(file.read_ranges(&ranges));
    // The task may yield while it allocates buffers, before it submits the reads.
    while engine.stats().counts.pushed == 0 {
        let _ = poll_once(reads.as_mut());
    }
    while engine.stats().batches.operations < ranges.len() as u64 {
        engine.reap();
    }
    engine.stats().batches.largest
}

#[test]
fn the_environment_sets_the_depth() {
    in_child_with("the_environment_sets_the_depth", &[("RINGWAY_IN_FLIGHT", "3")], || {
        let _watch = Watchdog::new("the_environment_sets_the_depth");
        assert!(largest_batch(threads()) <= 3);
        // The program's choice takes precedence.
        assert!(largest_batch(threads().in_flight(30)) > 3);
    });
}

#[test]
fn the_environment_sets_the_pool() {
    in_child_with("the_environment_sets_the_pool", &[("RINGWAY_POOL", "1g")], || {
        const LEN: usize = 48 << 20;
        const BLOCK: usize = 3 << 20;
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(LEN as u64).unwrap();
        let kept = |builder: EngineBuilder| {
            let engine = builder.build().unwrap();
            let file = File::from_fd(file.reopen().unwrap().into(), &engine);
            let before = resident("VmRSS");
            let read = |at| block_on(file.read(at as u64..(at + BLOCK) as u64)).unwrap();
            let blocks: Vec<_> = (0..LEN).step_by(BLOCK).map(read).collect();
            assert!(resident("VmRSS") > before + LEN / 2);
            drop(blocks);
            resident("VmRSS").saturating_sub(before)
        };
        // In the opposite order, the second engine would reuse memory that the first one keeps.
        assert!(kept(threads().pool_bytes(0)) < LEN / 2, "the program's choice was ignored");
        assert!(kept(threads()) > LEN / 2, "the environment was ignored");
    });
}

#[test]
fn invalid_values_are_refused() {
    let wrong = [("RINGWAY_IN_FLIGHT", "many"), ("RINGWAY_POOL", "64 MB")];
    in_child_with("invalid_values_are_refused", &wrong, || {
        let refused = |result: io::Result<Engine>, name: &str, value: &str| {
            let error = result.expect_err("a wrong value");
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            let text = error.to_string();
            assert!(text.contains(name) && text.contains(value), "{text}");
        };
        refused(threads().build(), "RINGWAY_IN_FLIGHT", "many");
        refused(threads().in_flight(9).build(), "RINGWAY_POOL", "64 MB");
        assert_eq!(kind(Engine::global()), io::ErrorKind::InvalidInput);
        threads().in_flight(9).pool_bytes(0).build().unwrap();
        // After a failure the next attempt may succeed.
        threads().in_flight(9).pool_bytes(0).install_global().unwrap();
    });
}

#[test]
fn a_depth_out_of_range_is_refused_with_its_name() {
    let wrong = [("RINGWAY_IN_FLIGHT", "1048577")];
    in_child_with("a_depth_out_of_range_is_refused_with_its_name", &wrong, || {
        let text = |result: io::Result<Engine>| {
            let error = result.expect_err("a wrong value");
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            error.to_string()
        };
        let found = text(threads().build());
        assert!(found.contains("RINGWAY_IN_FLIGHT") && found.contains("1048577"), "{found}");
        for wrong in [0, (1 << 20) + 1, u32::MAX] {
            let found = text(threads().in_flight(wrong).build());
            assert!(found.contains(&format!("in_flight must be 1 to 1048576, not {wrong}")));
            let found = text(threads().in_flight(9).in_flight_pipes(wrong).build());
            assert!(found.contains(&format!("in_flight_pipes must be 1 to 1048576, not {wrong}")));
        }
        threads().in_flight(1 << 20).in_flight_pipes(1 << 20).build().unwrap();
    });
}

#[test]
fn the_explanation_names_the_variable_that_forces_the_backend() {
    let forced = [("RINGWAY_BACKEND", "threads")];
    in_child_with("the_explanation_names_the_variable_that_forces_the_backend", &forced, || {
        let explanation = Engine::global().unwrap().explain();
        assert_eq!(explanation.forced_by, Some(ForcedBy::Environment));
        let text = explanation.to_string();
        assert!(text.starts_with("backend threads (forced by RINGWAY_BACKEND)"), "{text}");
    });
}

#[test]
fn empty_variables_are_unset() {
    let empty = [("RINGWAY_BACKEND", ""), ("RINGWAY_IN_FLIGHT", ""), ("RINGWAY_POOL", "")];
    in_child_with("empty_variables_are_unset", &empty, || {
        assert_eq!(Engine::global().unwrap().explain().forced_by, None);
    });
}
