use super::*;

fn config(change: impl FnOnce(&mut Config)) -> Config {
    let mut config = Config::default();
    config.environment.clear();
    change(&mut config);
    config
}

#[test]
fn limits_are_requests() {
    let template = PodTemplate::new(&config(|_| {}), PodImage::named("image:1", None)).unwrap();
    let pod = template.pod(PodRequest {
        meta: Meta::new().cpu(0.5).memory(96 << 20).gpu(2),
        ..Default::default()
    });
    let resources = pod.spec.unwrap().containers.remove(0).resources.unwrap();
    assert_eq!(resources.limits, resources.requests);
    let amount = |name: &str| resources.limits.as_ref().unwrap()[name].0.clone();
    assert_eq!(
        (amount("cpu"), amount("memory"), amount(GPU)),
        ("500m".into(), (96 << 20).to_string(), "2".into())
    );
}

#[test]
fn text_reaches_the_program_literally() {
    let template =
        PodTemplate::new(&config(|_| {}), PodImage::named("image:1", Some("/bin/$(x)".into())))
            .unwrap();
    let request = PodRequest {
        arguments: vec!["$(HOME)".into(), "$$".into()],
        environment: vec![variable("A", "$(B)")],
        ..Default::default()
    };
    let container = template.pod(request).spec.unwrap().containers.remove(0);
    assert_eq!(container.command.unwrap(), ["/bin/$$(x)"]);
    assert_eq!(container.args.unwrap(), ["$$(HOME)", "$$$$"]);
    assert_eq!(container.env.unwrap()[0].value.as_deref(), Some("$$(B)"));
}

#[test]
fn a_head_names_the_port_of_its_metrics() {
    let template = PodTemplate::new(&config(|_| {}), PodImage::named("image:1", None)).unwrap();
    let ports = |environment| {
        let pod = template.pod(PodRequest { environment, ..Default::default() });
        pod.spec.unwrap().containers.remove(0).ports
    };
    assert_eq!(ports(vec![variable("FIBER_BACKEND", "kubernetes")]), None);
    let found = ports(vec![variable("FIBER_METRICS", "0.0.0.0:9464")]).unwrap();
    assert_eq!((found[0].container_port, found[0].name.as_deref()), (9464, Some("metrics")));
}

#[test]
fn a_pod_of_a_user_who_is_not_root_is_restricted() {
    let contexts = |user: Option<&str>| {
        let config = config(|config| config.user = user.map(String::from));
        let template = PodTemplate::new(&config, PodImage::named("image:1", None)).unwrap();
        let mut spec = template.pod(PodRequest::default()).spec.unwrap();
        (spec.security_context.unwrap(), spec.containers.remove(0).security_context)
    };
    let (pod, container) = contexts(Some("1000:1000"));
    assert_eq!((pod.run_as_user, pod.run_as_non_root), (Some(1000), Some(true)));
    assert_eq!(pod.seccomp_profile.unwrap().type_, "RuntimeDefault");
    let container = container.unwrap();
    assert_eq!(container.allow_privilege_escalation, Some(false));
    assert_eq!(container.capabilities.unwrap().drop.unwrap(), ["ALL"]);
    for user in [None, Some("0")] {
        let (pod, container) = contexts(user);
        assert_eq!((pod.run_as_non_root, container), (None, None));
    }
}

#[test]
fn what_the_own_pod_says_of_rights_stays() {
    let (mut pod, own) =
        (PodSecurityContext { run_as_user: Some(7), ..Default::default() }, |add| {
            let add = Some(vec![String::from(add)]);
            let capabilities = Some(Capabilities { add, drop: None });
            SecurityContext { capabilities, ..Default::default() }
        });
    let mut container = Some(own("SYS_PTRACE"));
    restrict(&mut pod, &mut container);
    let container = container.unwrap();
    assert_eq!(container.capabilities, own("SYS_PTRACE").capabilities);
    assert_eq!(container.allow_privilege_escalation, Some(false));
    let mut privileged = Some(SecurityContext { privileged: Some(true), ..Default::default() });
    restrict(&mut pod, &mut privileged);
    assert_eq!(privileged.unwrap().allow_privilege_escalation, None);
}

#[test]
fn pods_inherit_from_the_current_pod() {
    let spec = PodSpec {
        service_account_name: Some("fiber".into()),
        node_selector: Some([("disk".to_string(), "fast".to_string())].into()),
        tolerations: Some(vec![toleration("gpu:NoSchedule").unwrap()]),
        volumes: Some(
            ["data", "kube-api-access-x", "unused"]
                .map(|name| Volume { name: name.into(), ..Default::default() })
                .into(),
        ),
        containers: vec![Container {
            volume_mounts: Some(vec![
                VolumeMount {
                    name: "data".into(),
                    mount_path: "/persistent".into(),
                    ..Default::default()
                },
                VolumeMount {
                    name: "kube-api-access-x".into(),
                    mount_path: "/var/run/secrets/kubernetes.io/serviceaccount".into(),
                    ..Default::default()
                },
            ]),
            ..Default::default()
        }],
        ..Default::default()
    };
    let own = CurrentPod::new("parent", "uid", spec);
    let config = config(|config| {
        config
            .edit(|section: &mut KubernetesSection| section.node_selector = vec!["zone=a".into()]);
        config.mounts = vec!["/etc:/host:ro".into()];
    });
    let template =
        PodTemplate::inheriting(&config, PodImage::named("image:1", None), Some(&own)).unwrap();
    let pod = template.pod(PodRequest::default());
    assert_eq!(pod.metadata.owner_references.unwrap()[0].name, "parent");
    let spec = pod.spec.unwrap();
    assert_eq!(spec.service_account_name.as_deref(), Some("fiber"));
    assert_eq!(spec.automount_service_account_token, Some(false));
    assert_eq!(spec.node_selector.unwrap().into_keys().collect::<Vec<_>>(), ["disk", "zone"]);
    assert_eq!(spec.tolerations.unwrap().len(), 1);
    let names: Vec<_> = spec.volumes.unwrap().into_iter().map(|volume| volume.name).collect();
    assert_eq!(names, ["mount-0", "data"]);
    let mounts = spec.containers[0].volume_mounts.clone().unwrap();
    assert_eq!(
        mounts.iter().map(|mount| mount.mount_path.as_str()).collect::<Vec<_>>(),
        ["/host", "/persistent"]
    );
}

#[test]
fn the_users_manifest_is_the_base_of_pods_and_of_theirs() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pod.yaml");
    let manifest = "
metadata: {labels: {team: a, fiber.session: mine}}
spec:
  schedulerName: theirs
  nodeSelector: {disk: fast}
  tolerations: [{key: a, operator: Exists}]
  securityContext: {runAsUser: 7}
  containers:
  - {name: sidecar, image: 'sidecar:1'}
  - {name: fiber, image: 'mine:1', env: [{name: A, value: a}, {name: B, value: b}]}
";
    std::fs::write(&file, manifest).unwrap();
    let outside = config(|config| {
        config.edit(|section: &mut KubernetesSection| {
            section.pod_template = Some(file);
            section.tolerations = vec!["a".into(), "b".into()];
            section.node_selector = vec!["zone=a".into()];
        });
    });
    let built = PodImage { user: Some("0:0".into()), ..PodImage::named("image:1", None) };
    let request = || PodRequest {
        labels: BTreeMap::from([("fiber.session".into(), "s".into())]),
        environment: vec![variable("B", "fiber's")],
        ..Default::default()
    };
    let template = PodTemplate::new(&outside, built.clone()).unwrap();
    let right = |pod: &Pod| {
        let labels = pod.metadata.labels.as_ref().unwrap();
        assert_eq!((labels["team"].as_str(), labels["fiber.session"].as_str()), ("a", "s"));
        let spec = pod.spec.as_ref().unwrap();
        assert_eq!(spec.scheduler_name.as_deref(), Some("theirs"));
        let selector = spec.node_selector.as_ref().unwrap();
        assert_eq!((selector["disk"].as_str(), selector["zone"].as_str()), ("fast", "a"));
        let keys = spec.tolerations.iter().flatten().filter_map(|one| one.key.as_deref());
        assert_eq!(keys.collect::<Vec<_>>(), ["a", "b"]);
        let security = spec.security_context.as_ref().unwrap();
        assert_eq!((security.run_as_user, security.run_as_non_root), (Some(7), Some(true)));
        let [fiber, sidecar] = &spec.containers[..] else { panic!("{:?}", spec.containers) };
        assert_eq!((sidecar.image.as_deref(), &sidecar.env), (Some("sidecar:1"), &None));
        assert_eq!(fiber.image.as_deref(), Some("image:1"));
        let env = fiber.env.iter().flatten().map(|one| (&*one.name, one.value.as_deref().unwrap()));
        assert_eq!(env.collect::<Vec<_>>(), [("A", "a"), ("B", "b"), ("B", "fiber's")]);
    };
    let pod = template.pod(request());
    right(&pod);
    assert_eq!(pod.metadata.annotations, Some(BTreeMap::new()));

    // A head in a pod starts pods from the manifest that its annotation hands on.
    let head = template.with_token().pod(request());
    let text = &head.metadata.annotations.as_ref().unwrap()[base_pod::ANNOTATION];
    let mut own = CurrentPod::new("head", "uid", head.spec.clone().unwrap());
    own.manifest = Some(serde_json::from_str(text).unwrap());
    let inside = config(|_| {});
    right(&PodTemplate::inheriting(&inside, built, Some(&own)).unwrap().pod(request()));
}

#[test]
fn errors_name_the_invalid_entry() {
    let error = |change: fn(&mut Config)| check(&config(change)).unwrap_err().to_string();
    assert!(error(|config| config.user = Some("anna".into())).contains("`user` is `anna`"));
    assert!(
        error(|config| {
            config.edit(|section: &mut KubernetesSection| {
                section.node_selector = vec!["fast".into()]
            });
        })
        .contains("`kubernetes.node_selector` has `fast`")
    );
    assert!(
        error(|config| {
            config.edit(|section: &mut KubernetesSection| {
                section.tolerations = vec!["a:Never".into()]
            });
        })
        .contains("`kubernetes.tolerations` has `a:Never`")
    );
    assert!(error(|config| config.mounts = vec!["data".into()]).contains("`mounts` has `data`"));
}
