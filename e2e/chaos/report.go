package chaos

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"
)

//go:embed report.html.tmpl
var text string

var document = template.Must(template.New("report").Parse(text))

// Row of the matrix: one fault at one victim.
type Row struct {
	Fault, Victim, About string
	Cells                []Square // in the order of Phases
}

// Square is one cell as the picture shows it.
type Square struct {
	Phase  Phase
	Class  string // hold, broken, skipped, not-run
	Sign   string
	Title  string
	Anchor string
}

// view is what the document is made of.
type view struct {
	*Campaign
	Phases                []Phase
	Rows                  []Row
	Hold, Broken, Skipped int
	Cores                 int
	Seconds               string
	Lease                 time.Duration
	Held                  time.Duration
}

// Rows are the matrix of the results: every row that a cell was run of.
func (c *Campaign) Rows() []Row {
	var out []Row
	for _, r := range c.Results {
		i := slices.IndexFunc(out, func(w Row) bool { return w.Fault == r.Fault && w.Victim == r.Victim })
		if i < 0 {
			row := Row{Fault: r.Fault, Victim: r.Victim}
			if f, err := find(r.Fault); err == nil {
				row.About = f.About
			}
			for _, p := range Phases {
				row.Cells = append(row.Cells, Square{Phase: p, Class: "not-run", Sign: "·", Title: "not run"})
			}
			out = append(out, row)
			i = len(out) - 1
		}
		out[i].Cells[slices.Index(Phases, r.Phase)] = r.square()
	}
	order := func(w Row) int { return slices.Index(everyone, w.Victim) }
	slices.SortStableFunc(out, func(a, b Row) int {
		if d := strings.Compare(a.Fault, b.Fault); d != 0 {
			return d
		}
		return order(a) - order(b)
	})
	return out
}

func (r Result) square() Square {
	s := Square{Phase: r.Phase, Class: "hold", Sign: "✓", Anchor: r.Cell.String(), Title: r.Cell.String() + ": " + r.Verdict}
	switch {
	case r.Skipped != "":
		s.Class, s.Sign, s.Title = "skipped", "–", "skipped: "+r.Skipped
	case !r.Holds():
		s.Class, s.Sign, s.Title = "broken", "✗", strings.Join(r.Broken, "; ")
	}
	return s
}

// WriteHTML writes the report for people.
func (c *Campaign) WriteHTML(w io.Writer) error {
	v := view{Campaign: c, Phases: Phases, Rows: c.Rows(), Cores: runtime.NumCPU(), Seconds: c.Took.Round(time.Second).String(), Lease: Lease, Held: held}
	v.Hold, v.Broken, v.Skipped = c.Counts()
	return document.Execute(w, v)
}

// results are a campaign for machines.
type results struct {
	Seed    uint64
	Began   time.Time
	Seconds float64
	Seen    Tally // rare states
	Results []Result
}

// WriteJSON writes the results for machines.
func (c *Campaign) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(results{c.Seed, c.Began, c.Took.Seconds(), c.seen, c.Results})
}

// ReadJSON takes what an earlier sitting of the campaign wrote: cells that held
// are not run again, its seed is this one's.
func (c *Campaign) ReadJSON(r io.Reader) error {
	var was results
	if err := json.NewDecoder(r).Decode(&was); err != nil {
		return err
	}
	c.Seed, c.seen, c.Took = was.Seed, was.Seen, time.Duration(was.Seconds*float64(time.Second))
	c.Results = slices.DeleteFunc(was.Results, func(r Result) bool { return !r.Holds() })
	return nil
}

// WriteText draws the matrix for a terminal.
func (c *Campaign) WriteText(w io.Writer) error {
	var out strings.Builder
	fmt.Fprintf(&out, "%-15s %-9s", "fault", "victim")
	for _, p := range Phases {
		fmt.Fprintf(&out, " %-8s", p)
	}
	for _, row := range c.Rows() {
		fmt.Fprintf(&out, "\n%-15s %-9s", row.Fault, row.Victim)
		for _, s := range row.Cells {
			fmt.Fprintf(&out, " %-8s", s.Sign)
		}
	}
	hold, broken, skipped := c.Counts()
	fmt.Fprintf(&out, "\n\n%d cells hold, %d do not, %d skipped, in %s; seed %d\n", hold, broken, skipped, c.Took.Round(time.Second), c.Seed)
	rare := c.Sometimes()
	if len(rare) > 0 {
		out.WriteString("sometimes:\n")
	}
	for _, r := range rare {
		fmt.Fprintln(&out, r)
	}
	for _, r := range c.Results {
		for _, b := range r.Broken {
			fmt.Fprintf(&out, "%s: %s\n", r.Cell, b)
		}
	}
	_, err := io.WriteString(w, out.String())
	return err
}
