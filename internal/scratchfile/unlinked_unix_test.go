//go:build unix

package scratchfile

func init() { openers["unlinked"] = openUnlinked }
