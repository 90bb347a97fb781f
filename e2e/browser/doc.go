// Package browser looks at Surehand's pages, and at Temporal's with Surehand's
// payloads in it, through a real headless Chromium. SUREHAND_SCREENSHOTS names a
// folder for what it saw.
package browser
