// An MCP client for `npm run test:clients`, built with the Go SDK. It connects to the servers that SERVERS names. Its first
// line is what it was told by the server "switchboard". Then it makes the calls that it reads: a line of JSON each, answered
// by a line of JSON.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"log"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
)

type server struct {
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers"`
	SignIn  bool              `json:"signIn"`
}

func (s server) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	for name, value := range s.Headers {
		request.Header.Set(name, value)
	}
	return http.DefaultTransport.RoundTrip(request)
}

type call struct {
	Server string         `json:"server"`
	Tool   string         `json:"tool"`
	Input  map[string]any `json:"input"`
}

func main() {
	ctx := context.Background()
	sessions, err := connect(ctx)
	if err != nil {
		log.Fatal(err)
	}
	listed, err := sessions["switchboard"].ListTools(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	instructions := sessions["switchboard"].InitializeResult().Instructions
	answers := json.NewEncoder(os.Stdout)
	answers.Encode(map[string]any{"instructions": instructions, "tools": listed.Tools})
	calls := json.NewDecoder(bufio.NewReader(os.Stdin))
	for {
		var next call
		if calls.Decode(&next) != nil {
			return
		}
		result, err := sessions[next.Server].CallTool(ctx, &mcp.CallToolParams{Name: next.Tool, Arguments: next.Input})
		if err != nil {
			result = &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: err.Error()}}, IsError: true}
		}
		answers.Encode(result)
	}
}

func connect(ctx context.Context) (map[string]*mcp.ClientSession, error) {
	var servers map[string]server
	if err := json.Unmarshal([]byte(os.Getenv("SERVERS")), &servers); err != nil {
		return nil, err
	}
	sessions := map[string]*mcp.ClientSession{}
	for name, server := range servers {
		client := mcp.NewClient(&mcp.Implementation{Name: "switchboard-test", Version: "1.0.0"}, nil)
		transport := &mcp.StreamableClientTransport{Endpoint: server.URL, HTTPClient: &http.Client{Transport: server}}
		if server.SignIn {
			handler, err := signIn()
			if err != nil {
				return nil, err
			}
			transport.OAuthHandler = handler
		}
		session, err := client.Connect(ctx, transport, nil)
		if err != nil {
			return nil, err
		}
		sessions[name] = session
	}
	return sessions, nil
}

func signIn() (auth.OAuthHandler, error) {
	metadata := &oauthex.ClientRegistrationMetadata{
		ClientName:   "Go SDK",
		RedirectURIs: []string{"http://127.0.0.1:8765/callback"},
	}
	return auth.NewAuthorizationCodeHandler(&auth.AuthorizationCodeHandlerConfig{
		DynamicClientRegistrationConfig: &auth.DynamicClientRegistrationConfig{Metadata: metadata},
		AuthorizationCodeFetcher: func(ctx context.Context, args *auth.AuthorizationArgs) (*auth.AuthorizationResult, error) {
			printed, err := exec.CommandContext(ctx, os.Getenv("SIGN_IN"), args.URL).Output()
			if err != nil {
				return nil, err
			}
			back, err := url.Parse(strings.TrimSpace(string(printed)))
			if err != nil {
				return nil, err
			}
			query := back.Query()
			return &auth.AuthorizationResult{Code: query.Get("code"), State: query.Get("state"), Iss: query.Get("iss")}, nil
		},
	})
}
