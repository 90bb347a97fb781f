package observe

import (
	_ "embed"

	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// Dashboard is Grafana's JSON, as it is imported.
//
//go:embed surehand.json
var Dashboard []byte

// Row of panels.
type Row struct {
	Title  string
	Panels []Panel
}

// Panel is one graph. Its unit is one of Grafana's.
type Panel struct {
	Title, About, Unit string
	Queries            []Query
}

// Query is PromQL and how its series are called.
type Query struct{ Expr, Legend string }

// quantiles of a histogram, with what it is split by.
func quantiles(metric, by string) []Query {
	legend, group := "", "le"
	if by != "" {
		legend, group = " {{"+by+"}}", "le, "+by
	}
	var out []Query
	for q, name := range map[string]string{"0.5": "p50", "0.99": "p99"} {
		out = append(out, Query{"histogram_quantile(" + q + ", sum by (" + group + ") (rate(" + metric + "_bucket[$__rate_interval])))", name + legend})
	}
	if out[0].Legend > out[1].Legend {
		out[0], out[1] = out[1], out[0]
	}
	return out
}

// Rows of the dashboard, from what clients see down to the processes.
var Rows = []Row{
	{"What clients get", []Panel{
		{"Handoffs", "Ended a second: completed, cancelled, refused before the first token or broken after it, and why.", "reqps",
			[]Query{{"sum by (outcome, reason) (rate(surehand_handoffs_total[$__rate_interval]))", "{{outcome}} {{reason}}"}}},
		{"Time to first token", "From the submit to the first token in the stream.", "s", quantiles("surehand_ttft_seconds", "")},
		{"Added to the first token", "The time to the first token less P's compute.", "s", quantiles("surehand_added_ttft_seconds", "")},
		{"Between two tokens", "Of one stream, as the gateway sees it.", "s", quantiles("surehand_gateway_token_gap_seconds", "")},
		{"Streams open", "Followed now, by gateway.", "short", []Query{{"surehand_gateway_streams_open", "{{instance}}"}}},
		{"Answers by code", "Requests ended a second, by what the client got.", "reqps",
			[]Query{{"sum by (code) (rate(surehand_gateway_requests_total[$__rate_interval]))", "{{code}}"}}},
		{"Tokens generated", "A second, of whole streams.", "short", []Query{{"sum(rate(surehand_gateway_completion_tokens_total[$__rate_interval]))", "tokens/s"}}},
	}},
	{"The steps of a handoff", []Panel{
		{"Step durations", "reserve and prefill run side by side, transfer overlaps prefill.", "s", quantiles("surehand_handoff_phase_duration_seconds", "phase")},
		{"Refusals", "Steps a second that ended with a typed refusal.", "reqps",
			[]Query{{"sum by (phase, reason) (rate(surehand_step_refusals_total[$__rate_interval]))", "{{phase}}: {{reason}}"}}},
		{"How prompt state came to D", "Prompt tokens a second: moved, found in D's cache, or computed again.", "short",
			[]Query{{"sum by (source) (rate(surehand_prompt_tokens_total[$__rate_interval]))", "{{source}}"}}},
		{"Recomputed", "Prompt tokens a second that D computed again.", "short", []Query{{"sum(rate(surehand_recomputed_tokens_total[$__rate_interval]))", "tokens/s"}}},
		{"Steps fenced", "Steps a second whose attempt was superseded, closed or of another life.", "reqps",
			[]Query{{"sum by (reason) (rate(surehand_fenced_total[$__rate_interval])) > 0 or vector(0)", "{{reason}}"}}},
	}},
	{"Memory", []Panel{
		{"Blocks free", "Of each engine.", "percentunit", []Query{{"surehand_engine_blocks_free / surehand_engine_blocks", "{{instance}}"}}},
		{"Engines at work", "Prefills and decodes on the device, and those that wait for it.", "short",
			[]Query{{"sum(surehand_engine_running)", "running"}, {"sum(surehand_engine_waiting)", "waiting"}}},
		{"Targets", "Attempts that hold memory of a D, by state.", "short", []Query{{"sum by (state) (surehand_transferd_targets)", "{{state}}"}}},
		{"Sources", "Attempts that hold memory of a P, by state.", "short", []Query{{"sum by (state) (surehand_transferd_sources)", "{{state}}"}}},
		{"Quarantined", "Bytes that cannot be proved free: they need an operator when they stay.", "bytes",
			[]Query{{"surehand_transferd_quarantined_bytes", "{{instance}}"}}},
		{"Pinned", "Source blocks that a grant may still read.", "short", []Query{{"surehand_transferd_pinned_blocks", "{{instance}}"}}},
		{"Held for nobody", "Blocks that an engine holds for handoffs that no history runs.", "short",
			[]Query{{"max by (engine) (surehand_kv_blocks_unreleased)", "{{engine}}"}}},
	}},
	{"The data plane", []Panel{
		{"Moved", "Bytes a second landed in targets, and of those that were committed.", "Bps",
			[]Query{{"sum(rate(surehand_transferd_pulled_bytes_total[$__rate_interval]))", "pulled"},
				{"sum(rate(surehand_transferd_committed_bytes_total[$__rate_interval]))", "committed"}}},
		{"Commits", "Targets that became visible, a second.", "reqps", []Query{{"sum(rate(surehand_transferd_committed_total[$__rate_interval]))", "commits"}}},
		{"Fenced", "Operations a second that the fence refused, by code.", "reqps",
			[]Query{{"sum by (code) (rate(surehand_transferd_fenced_total[$__rate_interval])) > 0 or vector(0)", "{{code}}"}}},
	}},
	{"Processes", []Panel{
		{"Up", "Scraped processes.", "short", []Query{{"sum by (job) (up)", "{{job}}"}}},
		{"Daemons ready", "1: serves.", "short", []Query{{"surehand_transferd_ready", "{{instance}}"}}},
		{"CPU", "Cores used.", "short", []Query{{"sum by (job) (rate(process_cpu_seconds_total[$__rate_interval]))", "{{job}}"}}},
		{"Memory", "Resident.", "bytes", []Query{{"sum by (job) (process_resident_memory_bytes)", "{{job}}"}}},
	}},
}

// Build makes Grafana's dashboard from the rows.
func Build() (dashboard.Dashboard, error) {
	const width, height, perLine = 8, 7, 3
	kind := "prometheus"
	source := common.DataSourceRef{Type: &kind, Uid: ref("${datasource}")}
	b := dashboard.NewDashboardBuilder("Surehand").Uid("surehand").Tags([]string{"surehand", "llm"}).Refresh("10s").
		Time("now-30m", "now").Timezone(common.TimeZoneBrowser).
		WithVariable(dashboard.NewDatasourceVariableBuilder("datasource").Label("Prometheus").Type("prometheus"))
	y := uint32(0)
	for _, row := range Rows {
		b = b.WithRow(dashboard.NewRowBuilder(row.Title).GridPos(dashboard.GridPos{Y: y, W: 24, H: 1}))
		y++
		for i, p := range row.Panels {
			panel := timeseries.NewPanelBuilder().Title(p.Title).Description(p.About).Unit(p.Unit).Min(0).Datasource(source).
				GridPos(dashboard.GridPos{X: uint32(i%perLine) * width, Y: y + uint32(i/perLine)*height, W: width, H: height})
			for _, q := range p.Queries {
				panel = panel.WithTarget(prometheus.NewDataqueryBuilder().Expr(q.Expr).LegendFormat(q.Legend).Range().Datasource(source))
			}
			b = b.WithPanel(panel)
		}
		y += uint32((len(row.Panels)+perLine-1)/perLine) * height
	}
	return b.Build()
}

func ref(s string) *string { return &s }
