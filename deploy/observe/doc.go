// Package observe holds what an operator loads into Prometheus and Grafana: the
// dashboard (surehand.json, made from the panels of dashboard.go), the alert
// rules (alerts.yml, with promtool's own tests in alerts_test.yml) and a scrape
// configuration to begin with (prometheus.yml).
//
// Every query of both is run against a real Prometheus that scrapes a real fleet
// by e2e/observe, and must return data.
package observe
