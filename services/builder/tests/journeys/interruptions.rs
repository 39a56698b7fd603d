//! Builds that are interrupted: by the server, by the network, and by a kill.

use std::sync::Arc;

use tokio::sync::Notify;

use crate::site::Contents;
use crate::*;

/// Waits until a build downloads an upload that never ends.
async fn stuck() -> (Scene, Builder) {
    let scene = Scene::new().await;
    scene.upload(Upload::Stuck(images::disk().into()));
    scene.queue(upload_source("a.raw"), ImageKind::Disk);
    let builder = scene.start();
    let source = scene.scratch().join(format!("{BUILD}.1/source"));
    process::poll(|| std::fs::metadata(&source).ok().filter(|it| it.len() > 0)).await;
    (scene, builder)
}

/// Waits until a build converts an image, which takes minutes.
async fn converting() -> (Scene, Builder) {
    let scene = Scene::with_upload("a.raw.xz", &images::endless()).await;
    let builder = scene.start();
    let is_converting = |it: &mut Contents| it.steps.last().is_some_and(|it| it == "converting");
    scene.site.wait_for(|it| is_converting(it).then_some(())).await;
    (scene, builder)
}

#[tokio::test]
async fn a_lost_lease_stops_a_download_and_leaves_nothing() {
    for reason in ["LEASE_LOST", "BUILD_ENDED"] {
        let (scene, builder) = stuck().await;
        scene.site.change(|it| it.lost = Some(reason));
        scene.is_clean().await;
        // The next lease shows that the builder goes on.
        scene.site.change(|it| (it.lost, it.running) = (None, None));
        scene.upload(Upload::Whole(images::disk().into()));
        scene.queue(upload_source("a.raw"), ImageKind::Disk);
        assert!(matches!(scene.site.outcome().await, Outcome::Content(_)));
        assert!(builder.stop().await);
    }
}

#[tokio::test]
async fn an_upload_that_is_cut_goes_on_where_it_ended() {
    let (scene, cut, disk) = (Scene::new().await, Arc::new(Notify::new()), images::disk());
    let half = disk.len() / 2;
    scene.upload(Upload::Cut(disk.clone().into(), cut.clone()));
    scene.queue(upload_source("a.raw"), ImageKind::Disk);
    let _builder = scene.start();
    let source = scene.scratch().join(format!("{BUILD}.1/source"));
    process::poll(|| std::fs::metadata(&source).ok().filter(|it| it.len() == half as u64)).await;
    cut.notify_one();
    let Outcome::Content(content) = scene.site.outcome().await else { panic!("it failed") };
    assert_eq!(content.sha256, digest(&disk));
    let fetches = scene.site.change(|it| it.fetches.clone());
    assert_eq!(fetches, [None, Some(format!("bytes={half}-"))]);
}

#[tokio::test]
async fn a_lost_lease_kills_the_sandbox_and_leaves_nothing() {
    let (scene, builder) = converting().await;
    let job = builder.job().await;
    scene.site.change(|it| it.lost = Some("LEASE_LOST"));
    process::poll(|| (!process::exists(job)).then_some(())).await;
    scene.is_clean().await;
    assert_eq!(scene.site.change(|it| it.outcomes.len()), 0);
}

#[tokio::test]
async fn a_killed_sandbox_is_a_failure_that_may_be_retried() {
    let (scene, builder) = converting().await;
    process::kill(builder.job().await);
    let failure = failure(scene.site.outcome().await);
    let reason = "source: conversion: killed by signal 9".into();
    assert_eq!(failure, BuildFailure { reason, may_retry: true });
    scene.is_clean().await;
}

#[tokio::test]
async fn a_builder_that_stops_leaves_the_build_to_its_successor() {
    let (scene, builder) = stuck().await;
    assert!(builder.stop().await);
    assert_eq!(scene.leftovers(), Vec::<PathBuf>::new());
    assert_eq!(scene.site.change(|it| it.outcomes.len()), 0);
    scene.upload(Upload::Whole(images::disk().into()));
    scene.content().await;
}

#[tokio::test]
async fn a_killed_builder_leaves_files_that_its_successor_removes() {
    let (scene, builder) = stuck().await;
    builder.kill();
    let left = scene.leftovers();
    assert_eq!(left.len(), 1);
    // The lease is over, and there is no other build.
    scene.site.change(|it| it.running = None);
    let _successor = scene.start();
    scene.is_clean().await;
}

#[tokio::test]
async fn a_server_that_is_away_is_asked_again_at_each_step() {
    let scene = Scene::with_upload("a.raw", &images::disk()).await;
    let kinds = ["lease", "report", "upload", "blob", "finish"];
    scene.site.change(|it| it.failures = kinds.map(|kind| (kind, 10)).into());
    let content = scene.content().await;
    assert_eq!(content.sha256, digest(&images::disk()));
    let left: u32 = scene.site.change(|it| it.failures.values().sum());
    assert_eq!(left, 0);
}

#[tokio::test]
async fn missing_blobs_are_sent_again() {
    let scene = Scene::with_upload("a.raw", &images::disk()).await;
    scene.site.change(|it| it.loses_blobs = true);
    let content = scene.content().await;
    let pair = [content.stored_sha256, content.map_sha256];
    assert_eq!(scene.site.change(|it| it.sent.clone()), [pair.clone(), pair].concat());
}

#[tokio::test]
async fn a_lease_is_renewed_while_a_step_lasts() {
    let (scene, _builder) = stuck().await;
    let before = scene.site.change(|it| it.steps.len());
    scene.site.wait_for(|it| (it.steps.len() >= before + 3).then_some(())).await;
    assert!(scene.site.change(|it| it.steps.iter().all(|step| step == "downloading")));
}
