//! Images that are not there: pulled from a registry of the test's own, or not.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use runbridge_sandbox::SandboxError;
use runbridge_sandbox::container::{ContainerSandbox, Progress};
use runbridge_testkit::{Gives, Registry, RegistryImage};

use crate::engines::{Bench, Engine, eventually, image, on_every_engine};
use crate::python::Python;

/// The same engine as the testkit knows it.
fn of_testkit(engine: &Engine) -> runbridge_testkit::Engine {
    runbridge_testkit::Engine::named(&engine.name).unwrap()
}

/// How often more bytes were told of than before.
fn growths(steps: &[(u64, u64)]) -> usize {
    steps.windows(2).filter(|two| two[0].0 < two[1].0).count()
}

#[tokio::test]
async fn an_image_is_pulled_with_growing_progress_and_python_runs_in_it() {
    on_every_engine(async |engine| {
        let known = of_testkit(&engine);
        let bytes = 4 << 20;
        let image = RegistryImage::upon(&known, &image(), bytes);
        let registry = Arc::new(Registry::serve(image, Gives::Slowly));
        let mut bench = Bench::new(&engine);
        bench.config.image = registry.reference("here");
        let steps: Arc<Mutex<Vec<(u64, u64)>>> = Arc::default();
        let (heard, serving) = (Arc::clone(&steps), Arc::clone(&registry));
        let report = move |step: Progress| {
            let Progress::PullingImage {
                image,
                bytes_done,
                bytes_total,
            } = step
            else {
                panic!("{step:?}")
            };
            assert!(image.starts_with("127.0.0.1:"), "{image}");
            let mut heard = heard.lock().unwrap();
            heard.push((bytes_done, bytes_total));
            if growths(&heard) >= 2 {
                serving.hurry();
            }
        };
        let sandbox = ContainerSandbox::open(bench.config.clone(), Arc::new(report))
            .await
            .unwrap();
        let steps = std::mem::take(&mut *steps.lock().unwrap());
        let shrank = steps.windows(2).any(|two| two[0].0 > two[1].0);
        assert!(growths(&steps) >= 2 && !shrank, "{steps:?}");
        let (done, total) = *steps.last().unwrap();
        assert!(done <= total && total >= bytes as u64, "{done} of {total}");
        assert_eq!(sandbox.facts().image, bench.config.image);

        let mut python = Python::new(sandbox.start().await.unwrap()).await;
        let code = "import os\nprint(os.path.getsize('/noise'))";
        assert_eq!(python.run(code).await.stdout, format!("{bytes}\n"));
        sandbox.shut_down().await;
        known.remove_image(&bench.config.image);
        assert_eq!(bench.containers().await, Vec::<String>::new());
    })
    .await;
}

#[tokio::test]
async fn what_a_registry_answers_is_told_and_nothing_is_left() {
    on_every_engine(async |engine| {
        for (gives, tag, said) in [
            (Gives::All, "absent", &["manifest unknown"][..]),
            (
                Gives::Nothing,
                "here",
                &["no basic auth", "unauthorized", "authentication required"],
            ),
            (Gives::Half, "here", &["EOF", "connection reset"]),
        ] {
            let registry = Registry::serve(RegistryImage::new(1 << 20), gives);
            let mut bench = Bench::new(&engine);
            bench.config.image = registry.reference(tag);
            let opened = ContainerSandbox::open(bench.config.clone(), Arc::new(|_| {})).await;
            let Err(SandboxError::ImageMissing { image, reason }) = opened else {
                panic!("{gives:?} did not fail as it should")
            };
            assert_eq!(image, bench.config.image);
            assert!(
                said.iter().any(|part| reason.contains(part)),
                "{gives:?} of {tag}: {reason}"
            );
            assert!(!of_testkit(&engine).has_image(&image), "{gives:?}");
            assert_eq!(bench.containers().await, Vec::<String>::new());
        }
    })
    .await;
}

#[tokio::test]
async fn a_pull_that_nobody_wants_any_more_ends() {
    on_every_engine(async |engine| {
        let registry = Registry::serve(RegistryImage::new(1 << 20), Gives::Little);
        let mut bench = Bench::new(&engine);
        bench.config.image = registry.reference("here");
        let opening = ContainerSandbox::open(bench.config.clone(), Arc::new(|_| {}));
        let asked = eventually("the engine asks for the layer", WITHIN, async || {
            registry.is_asked()
        });
        tokio::select! {
            opened = opening => panic!("it ended: {:?}", opened.err()),
            () = asked => {}
        }
        eventually("the engine gives up", WITHIN, async || {
            registry.is_given_up()
        })
        .await;
        assert!(!of_testkit(&engine).has_image(&bench.config.image));
    })
    .await;
}

const WITHIN: Duration = Duration::from_secs(30);
